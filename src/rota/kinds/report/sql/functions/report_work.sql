-- Notes the job that now finds or joins the pages of a run: a retry has another id.
-- Locks: the row of the run, if it names another job.
create or replace function {schema}.report_work(p_run bigint, p_job bigint)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  update {schema}.report_run r
  set job = p_job
  where r.id = p_run
    and r.job <> p_job
$$;
revoke execute on function {schema}.report_work(bigint, bigint) from public;
