-- Records that jobs are about to begin, if their claim asked for it. p_shared runs parallel: the
-- job begins beside others that may be at fault if the worker is lost, so its loss is not charged
-- (start_recorded is NULL). Returns the jobs still held, and whether each was recorded: a locked
-- row is not. A second call answers the same.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M33, a loss before the start is not charged; a job that may begin only once does so.
create or replace function {schema}.job_start(
  p_ids bigint[],
  p_claims int[],
  p_shared boolean[]
)
returns table (id bigint, recorded boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  with held as materialized (
    select * from {schema}.claims_lock(p_ids, p_claims)
  ),
  started as (
    update {schema}.job j
    set
      start_recorded = case when not p_shared[array_position(p_ids, j.id)] then true end,
      started_at = {schema}.clock()
    where j.id = any (array(select h.id from held h where h.is_free))
    returning j.id
  )
  select h.id, h.id in (select s.id from started s)
  from held h;
end $$;
