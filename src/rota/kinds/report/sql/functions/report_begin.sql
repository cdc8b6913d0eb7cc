-- Notes the pages of a run once they are found. Returns true; NULL: the run was cancelled.
-- Locks: the row of the run.
create or replace function {schema}.report_begin(p_run bigint, p_batch bigint, p_pages int)
returns boolean
language sql
set search_path = pg_catalog, pg_temp
as $$
  update {schema}.report_run r
  set batch = p_batch, pages = p_pages
  where r.id = p_run
    and r.cancelled_at is null
  returning true
$$;
revoke execute on function {schema}.report_begin(bigint, bigint, int) from public;
