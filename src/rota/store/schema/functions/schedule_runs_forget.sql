-- Deletes the records of runs that are older than history is kept. Returns how many.
-- Locks: the rows of the runs, with SKIP LOCKED; index schedule_run_enqueued.
-- Keeps: M13, the table of runs stops growing.
create or replace function {schema}.schedule_runs_forget(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with old as materialized (
    select r.schedule, r.job
    from {schema}.schedule_run r
    where r.enqueued_at < {schema}.clock() - (
      select k.keep
      from {schema}.retention k
      where k.what = 'history'
    )
    order by r.enqueued_at
    limit p_limit
    for update skip locked
  )
  delete from {schema}.schedule_run r
  using old o
  where r.schedule = o.schedule
    and r.job = o.job;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
