-- Returns the next thousand ready jobs behind the last of p_ids, of each queue and priority, that
-- wait for nothing or for p_rooms (NULL: for a breaker), and ask no lane.
-- Locks: none; indexes job_pkey and job_ready.
create or replace function {schema}.ready_behind(p_ids bigint[], p_rooms text[])
returns setof bigint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  select behind.id
  from (
    select distinct on (j.queue, j.priority) j.queue, j.priority, j.run_at, j.id
    from {schema}.job j
    where j.id = any (p_ids)
    order by j.queue, j.priority, j.run_at desc, j.id desc
  ) last
  cross join lateral (
    select j.id
    from {schema}.job j
    where j.queue = last.queue
      and j.priority = last.priority
      and j.status in ('queued', 'failed')
      and (j.run_at, j.id) > (last.run_at, last.id)
      and j.run_at <= {schema}.clock()
      and (
        j.waits_for is null
        or j.waits_for = any (p_rooms)
        or p_rooms is null and j.waits_for like 'breaker %'
      )
      and j.mismatched_releases is null
      and (j.group_key is null or j.in_lane)
    order by j.run_at, j.id
    limit 1000
  ) behind;
end $$;
