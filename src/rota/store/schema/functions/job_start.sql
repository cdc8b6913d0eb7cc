-- Records that jobs are about to begin, for those whose claim asked for it; returns those still held, and which were recorded. A row that another
-- transaction has locked is not waited for, or one job would keep all others from beginning. Asked twice it answers twice the same.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M33, what was lost before its start was recorded is not charged, and what may begin once
-- only does not begin twice.
create or replace function job_start(p_ids bigint[], p_claims int[]) returns table (id bigint, recorded boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path from current as $$
#variable_conflict use_column
begin
  return query
  with free as materialized (
    select j.id from job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id for no key update of j skip locked),
  started as (
    update job j set start_recorded = true, started_at = clock()
    where j.id = any (array(select f.id from free f))
    returning j.id)
  select j.id, j.id in (select s.id from started s) from job j
  where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;
