-- Notes the file of a run: the run is ready. p_keep: how long the file is kept. Returns true; NULL:
-- the run was cancelled. Call it in the transaction that finishes the job.
-- Locks: the row of the run.
create or replace function {schema}.report_finish(
  p_run bigint,
  p_file text,
  p_size bigint,
  p_checksum text,
  p_keep interval
)
returns boolean
language sql
set search_path = pg_catalog, pg_temp
as $$
  update {schema}.report_run r
  set
    file = p_file,
    rows = (select coalesce(sum(f.rows), 0) from {schema}.report_file f where f.run = p_run),
    size = p_size,
    checksum = p_checksum,
    finished_at = {schema}.clock(),
    expires_at = {schema}.clock() + p_keep
  where r.id = p_run
    and r.cancelled_at is null
  returning true
$$;
revoke execute on function {schema}.report_finish(bigint, text, bigint, text, interval) from public;
