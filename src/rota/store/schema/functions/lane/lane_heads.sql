-- Returns the jobs that may take a place of their lane now, the first of each lane first: due jobs,
-- in the order of (priority, run_at, id), each while fewer jobs than its own group_capacity hold a
-- place; beside a holder whose own capacity is 1, none. A first job that nobody can take now holds
-- up its lane. The answer stays true while the caller holds the lanes' stripes.
-- Locks: none; index job_lane.
-- Keeps: M60, the jobs of a lane start in the order of becoming due.
create or replace function {schema}.lane_heads(p_lanes text[])
returns table (lane text, id bigint, status text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_mergejoin = off set enable_hashjoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_is_held boolean;
  v_is_single boolean;
  v_is_due boolean;
begin
  -- If a job holds a place, it is the lane's first entry: nearly always one entry says enough.
  for lane, id, status, v_is_held, v_is_single, v_is_due in
    select
      l.lane, f.id, f.status, f.in_lane, coalesce(f.group_capacity, 1) = 1,
      f.run_at <= {schema}.clock()
    from unnest(p_lanes) l(lane)
    cross join lateral (
      select j.id, j.status, j.in_lane, j.group_capacity, j.run_at
      from {schema}.job j
      where j.group_key = l.lane
        and (j.in_lane or j.status in ('queued', 'failed', 'waiting'))
      order by j.in_lane, j.priority desc, j.run_at, j.id
      limit 1
    ) f
  loop
    if v_is_held is null and v_is_single and v_is_due then
      return next;
    elsif v_is_held is null or not v_is_single then
      return query
      select lane, n.id, n.status
      from {schema}.lane_next(lane) n;
    end if;
  end loop;
end $$;
