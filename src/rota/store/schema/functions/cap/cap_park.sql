-- Parks these jobs in the line of a cap. p_more: also jobs that the cap counts among the next
-- thousand ready ones behind each of their priorities, so that a type with many jobs is soon out of
-- the way of its queue and of its own jobs that compete for a slot. Jobs of a lane ask it first,
-- and wait for it or, with a place, for the cap.
-- Locks: further rows, SKIP LOCKED; their lanes' stripes, no wait; indexes job_ready and job_lane.
create or replace function {schema}.cap_park(p_cap text, p_ids bigint[], p_more boolean)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  -- Of a type's cap; a queue's cap counts all types.
  v_types text[] := case
    when p_cap like 'type %' then {schema}.type_names(substr(p_cap, 6))
  end;
  v_more bigint[] := '{}';
  v_lanes text[];                                -- lanes that the further jobs ask
  v_missing text[];                              -- lanes whose stripes other sessions hold
  v_heads bigint[];                              -- jobs that their lanes let in
begin
  if p_more then
    v_more := array(
      with last as materialized (
        select distinct on (j.queue, j.priority) j.queue, j.priority, j.run_at, j.id
        from {schema}.job j
        where j.id = any (p_ids)
        order by j.queue, j.priority, j.run_at desc, j.id desc
      ),
      behind as materialized (
        select b.id
        from last l
        cross join lateral (
          select j.id, j.job_type
          from {schema}.job j
          where j.queue = l.queue
            and j.priority = l.priority
            and j.status in ('queued', 'failed')
            and (j.run_at, j.id) > (l.run_at, l.id)
            and j.run_at <= {schema}.clock()
          order by j.run_at, j.id
          limit 1000
        ) b
        where v_types is null
          or b.job_type = any (v_types)
      )
      select j.id
      from {schema}.job j
      where j.id = any (array(select b.id from behind b))
        and j.status || '' in ('queued', 'failed')  -- not by an index of the status
      for update skip locked
    );
    v_lanes := array(
      select distinct j.group_key
      from {schema}.job j
      where j.id = any (v_more)
        and j.group_key is not null
        and j.in_lane is null
    );
  end if;
  if v_lanes <> '{}' then
    v_missing := {schema}.stripes_lock(array(select 'group ' || unnest(v_lanes)), 0);
    v_lanes := array(
      select l.lane
      from unnest(v_lanes) l(lane)
      where 'group ' || l.lane <> all (v_missing)
    );
    v_heads := array(select h.id from {schema}.lane_heads(v_lanes) h);
    perform {schema}.jobs_park(
      array(
        select j.id
        from {schema}.job j
        where j.id = any (v_more)
          and j.in_lane is null
          and j.group_key = any (v_lanes)
          and j.id not in (select unnest(v_heads))
      ),
      null::text[],
      null::timestamptz[]
    );
    v_more := array(
      select j.id
      from {schema}.job j
      where j.id = any (v_more)
        and (j.group_key is null or j.in_lane or j.id in (select unnest(v_heads)))
    );
  end if;
  v_more := p_ids || v_more;
  perform {schema}.jobs_park(
    v_more, array_fill(p_cap, array[cardinality(v_more)]), null::timestamptz[]
  );
end $$;
