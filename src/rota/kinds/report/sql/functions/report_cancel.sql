-- Cancels a run, so that the next request gets a new run. A ready run stays. Returns the batch and
-- the job to cancel too; no row: there is nothing to cancel.
-- Locks: the row of the run.
create or replace function {schema}.report_cancel(p_run bigint)
returns table (batch bigint, job bigint)
language sql
set search_path = pg_catalog, pg_temp
as $$
  update {schema}.report_run r
  set cancelled_at = {schema}.clock(), digest = null
  where r.id = p_run
    and r.finished_at is null
  returning r.batch, coalesce(
    (select b.then_job from {schema}.batch b where b.id = r.batch),
    r.job
  )
$$;
revoke execute on function {schema}.report_cancel(bigint) from public;
