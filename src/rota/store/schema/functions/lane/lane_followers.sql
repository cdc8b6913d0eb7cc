-- Locks and returns up to about p_limit ready jobs that stand behind these in their lanes.
-- Locks: the rows that it returns, with SKIP LOCKED; index job_lane.
create or replace function {schema}.lane_followers(p_ids bigint[], p_limit int)
returns bigint[]
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
  with last as materialized (
    select distinct on (j.group_key) j.group_key, j.priority, j.run_at, j.id
    from {schema}.job j
    where j.id = any (p_ids)
    order by j.group_key, j.priority, j.run_at desc, j.id desc
  )
  select array(
    select follower.id
    from last l
    cross join lateral (
      select j.id
      from {schema}.job j
      where j.group_key = l.group_key
        and j.in_lane is null
        and j.priority = l.priority
        and (j.run_at, j.id) > (l.run_at, l.id)
        and j.run_at <= {schema}.clock()
        and j.status in ('queued', 'failed')
      order by j.in_lane, j.priority desc, j.run_at, j.id
      limit 1 + p_limit / (select count(*) from last)
      for update skip locked
    ) follower
  )
$$;
