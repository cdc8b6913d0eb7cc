-- Creates today's partitions if they are missing. A worker repeats the statement that failed
-- without one; a caller's transaction cannot.
create or replace function today_ensure()
returns void
language plpgsql
set search_path from current
as $$
begin
  if to_regclass('job_history_' || to_char(clock() at time zone 'UTC', 'YYYYMMDD')) is null then
    perform partitions_ensure(0);
  end if;
end $$;
