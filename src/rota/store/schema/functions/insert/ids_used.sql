-- Returns one of these ids that a job had which is gone; NULL: none. The steps, effects and claims
-- of that job must not become another job's.
-- Locks: none; indexes job_history_id, attempt_job and effect_job, one descent for each id.
create or replace function {schema}.ids_used(p_ids bigint[])
returns bigint
language sql stable
set enable_seqscan = off
as $$
  select min(given.id)
  from unnest(p_ids) given(id)
  where given.id <= greatest(
      (select max(h.id) from {schema}.job_history h),
      (select max(a.job) from {schema}.attempt a),
      (select max(e.job) from {schema}.effect e)
    )
    and (
      exists (select from {schema}.job_history h where h.id = given.id)
      or exists (select from {schema}.attempt a where a.job = given.id)
      or exists (select from {schema}.effect e where e.job = given.id)
    )
$$;
