-- Returns how the jobs ended that a running job has waited for: succeeded, dead, archived (dead,
-- and archived), cancelled, or gone (no row is left). job is the id of the job that ended: it
-- differs from awaited if a person requeued that job. No rows before the first wait is over.
create or replace function {schema}.worker_results(id bigint, claims int)
returns table (
  awaited bigint,
  job bigint,
  outcome text,
  result jsonb,
  error_type text,
  message text
)
language plpgsql security definer
as $$
begin
  perform {schema}.job_by_claim(worker_results.id, worker_results.claims);
  return query
  select r.id, r.job, r.outcome, r.result::jsonb, r.error_type, r.message
  from {schema}.results_of(array[worker_results.id]) r;
end $$;
revoke execute on function {schema}.worker_results(bigint, int) from public;
