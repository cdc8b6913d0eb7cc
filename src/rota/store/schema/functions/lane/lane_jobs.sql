-- Returns the live jobs of a lane: with a place, waiting for a place, and dead (for jobs_find).
-- SECURITY DEFINER: a reader of the view needs no right on the table, and gets ids only. Raises
-- without SELECT on the view.
-- Locks: none; indexes job_lane and job_dead.
create or replace function {schema}.lane_jobs(p_group_key text)
returns setof bigint
language sql stable security definer
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select j.id
  from {schema}.job j
  where j.group_key = p_group_key
    and {schema}.caller_check('jobs'::text, 'SELECT'::text)
    and (j.in_lane or j.status in ('queued', 'failed', 'waiting'))
  union all
  select d.id
  from {schema}.job d
  where d.group_key = p_group_key
    and {schema}.caller_check('jobs'::text, 'SELECT'::text)
    and d.status = 'dead'
    and d.in_lane is null
$$;
