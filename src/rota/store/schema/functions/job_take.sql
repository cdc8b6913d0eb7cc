-- Gives these jobs to a worker, and returns the ids of those that it now holds (for job_claim).
-- Where must_record_start says so of the job, or p_records of its type, it may begin only after
-- job_start has recorded it. The function has no search_path of its own: job_claim has one.
create or replace function {schema}.job_take(
  p_ids bigint[],
  p_worker text,
  p_types text[],
  p_leases interval[],
  p_records boolean[]
)
returns setof bigint
language plpgsql
as $$
begin
  return query
  update {schema}.job j
  set
    status = 'running',
    locked_by = p_worker,
    locked_until = {schema}.clock() + p_leases[array_position(p_types, j.job_type)],
    attempts = j.attempts + 1,
    claims = j.claims + 1,
    started_at = {schema}.clock(),
    start_recorded = case
      when {schema}.must_record_start(j.losses, j.max_attempts, null)
        or p_records[array_position(p_types, j.job_type)]
        then false
    end
  where j.id = any (p_ids)
  returning j.id;
end $$;
