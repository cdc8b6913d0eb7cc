-- Creates today's partitions if they are missing. A worker repeats a statement that failed without
-- one; a caller's transaction cannot.
create or replace function {schema}.today_ensure()
returns void
language plpgsql
as $$
begin
  if to_regclass(
    '{schema}.job_history_' || to_char({schema}.clock() at time zone 'UTC', 'YYYYMMDD')
  ) is null then
    perform {schema}.partitions_ensure(0);
  end if;
end $$;
