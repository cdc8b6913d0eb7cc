-- Deletes runs whose files are deleted.
-- Locks: the rows of the runs.
create or replace function {schema}.report_forget(p_runs bigint[])
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  delete from {schema}.report_run r
  where r.id = any (p_runs)
$$;
revoke execute on function {schema}.report_forget(bigint[]) from public;
