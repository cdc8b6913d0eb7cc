-- Limits how long a statement waits for a lock, until the transaction ends: 1 s, or 0.2 s while
-- jobs are tried around a locked job. Upkeep locks its own rows without waiting, but can wait for a
-- key, or for what a user's trigger touches.
create or replace function {schema}.wait_briefly(p_only bigint[])
returns void
language plpgsql
as $$
declare
  v_now interval := pg_catalog.current_setting('lock_timeout')::interval;
  v_most int := case when p_only is null then 1000 else 200 end;
begin
  if v_now = interval '0' or v_now > v_most * interval '1 ms' then
    perform pg_catalog.set_config('lock_timeout', v_most || 'ms', true);
  end if;
end $$;
