-- Gives these jobs to a worker, and returns the ids of those that it now holds (for job_claim). A
-- job may begin only after job_start has recorded it if it was lost before, has one attempt only,
-- or has a type that is in p_records. The function has no search_path of its own: job_claim has
-- one.
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
      when j.losses > 0
        or j.max_attempts = 1
        or p_records[array_position(p_types, j.job_type)]
        then false
    end
  where j.id = any (p_ids)
  returning j.id;
end $$;
