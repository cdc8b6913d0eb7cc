-- Returns the jobs among these that their lanes let run: jobs without a lane, with a place, or that
-- may take one now. The rest are parked, and if they are most of the jobs, up to five thousand more
-- of their lanes, so that a lane with many jobs is soon out of the way. The caller has locked the
-- rows and holds the stripes.
-- Locks: further rows of the lanes, with SKIP LOCKED; index job_lane.
-- Keeps: M60.
create or replace function {schema}.lanes_admit(p_ids bigint[])
returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  -- Not array_agg(distinct …): job_claim turns sorts off: it would read all of job_lane.
  v_lanes text[] := array(
    select distinct j.group_key
    from {schema}.job j
    where j.id = any (p_ids)
      and j.group_key is not null
      and j.in_lane is null
  );
  v_heads bigint[];
  v_parked bigint[];
  v_losers bigint[];
begin
  if v_lanes = '{}' then
    return p_ids;
  end if;
  select
    coalesce(array_agg(h.id) filter (where h.status <> 'waiting'), '{}'),
    coalesce(array_agg(h.id) filter (where h.status = 'waiting'), '{}')
  into v_heads, v_parked
  from {schema}.lane_heads(v_lanes) h;
  perform {schema}.jobs_release(v_parked, true, false);
  v_losers := array(
    select j.id
    from {schema}.job j
    where j.id = any (p_ids)
      and j.group_key is not null
      and j.in_lane is null
      and j.id not in (select unnest(v_heads))
  );
  if v_losers = '{}' then
    return p_ids;
  end if;
  v_parked := '{}';
  if 2 * cardinality(v_losers) > cardinality(p_ids) then
    v_parked := array(
      with last as materialized (
        select distinct on (j.group_key) j.group_key, j.priority, j.run_at, j.id
        from {schema}.job j
        where j.id = any (v_losers)
        order by j.group_key, j.priority, j.run_at desc, j.id desc
      )
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
        limit 1 + 5000 / (select count(*) from last)
        for update skip locked
      ) follower
    );
  end if;
  perform {schema}.jobs_park(v_losers || v_parked, null::text[], null::timestamptz[]);
  return array(select unnest(p_ids) except select unnest(v_losers));
end $$;
