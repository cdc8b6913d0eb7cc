-- Gives these jobs to a worker, and returns the jobs that it now holds (for job_claim). Where
-- must_record_start says so of the job, or p_records of its type, it may begin only after job_start
-- has recorded it. Jobs of types whose keys are held until the start give up their keys. A job with
-- a group_key holds a place of its lane from now on; a job of p_capped_types or p_capped_queues
-- counts in a cap. p_starts: as in job_admit. The function has no search_path: job_claim has one.
-- Rows: {claimed}.
create or replace function {schema}.job_take(
  p_ids bigint[],
  p_worker text,
  p_types text[],
  p_leases interval[],
  p_records boolean[],
  p_capped_types text[],
  p_capped_queues text[],
  p_starts jsonb
)
returns setof {schema}.claimed_job
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
      when {schema}.must_record_start(j.losses, j.max_attempts, null::text)
        or p_records[array_position(p_types, j.job_type)]
        then false
    end,
    in_lane = case when j.group_key is not null then true end,
    capped = case
      when j.job_type = any (p_capped_types) or j.queue = any (p_capped_queues) then true
    end,
    waits_for = case
      when j.waits_for is null then null
      when j.job_type = any (p_capped_types) or j.queue = any (p_capped_queues) then null
      else j.waits_for
    end
  where j.id = any (p_ids)
  returning
    {claimed_values};
  if exists (select from {schema}.job_type t where t.key_scope = 'pending') then
    perform {schema}.keys_give_up(p_ids);
  end if;
end $$;
