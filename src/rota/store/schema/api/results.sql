-- Returns what came of the jobs that a running job has waited for: succeeded, dead, archived (it
-- was dead, and is archived), cancelled, or gone (nothing is kept of it). job is the one that
-- ended: another one than awaited if a person requeued that. No rows before its first wait is over.
create or replace function {schema}.results(id bigint, claims int)
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
  perform {schema}.job_by_claim(results.id, results.claims);
  return query
  select r.id, r.job, r.outcome, r.result::jsonb, r.error_type, r.message
  from {schema}.results_of(array[results.id]) r;
end $$;
revoke execute on function {schema}.results(bigint, int) from public;
