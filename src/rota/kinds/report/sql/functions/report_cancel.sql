-- Cancels a run: whoever asks for the same gets another one from now on. One that is ready stays.
-- Returns its batch and its job, which are to be cancelled too; no row: there is nothing to cancel.
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
