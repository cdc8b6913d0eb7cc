-- Returns whether all places of a lane are held by jobs that wait for jobs behind them in it.
-- Locks: none; indexes job_lane and job_pkey.
create or replace function {schema}.lane_stuck(p_lane text)
returns boolean
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
  select coalesce(count(*) >= max(coalesce(n.group_capacity, 1)), false)
  from {schema}.job h
  join {schema}.job n on n.id = case
    when h.waits_for ~ '^job [0-9]{1,18}$' then substr(h.waits_for, 5)::bigint
  end
  where h.group_key = p_lane
    and h.in_lane
    and h.status || '' = 'waiting'  -- not by an index of the status
    and n.group_key = p_lane
    and n.in_lane is null
    and n.status in ('queued', 'failed', 'waiting')
$$;
