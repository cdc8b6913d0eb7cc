-- Gives free places to jobs that wait for their lane or a cap, where nobody else did: the holder
-- was ended in an application's transaction or deleted by hand, its end did not get the stripe, or
-- a cap was raised by hand. Also makes jobs due whose breaker is closed. Reads up to p_limit
-- breakers, lanes and caps, in the order of their names ('breaker NAME KEY', 'group KEY', 'queue
-- NAME', 'type NAME'), from behind p_after on. p_counts: it first counts running jobs that began
-- before their cap. Returns the last name (NULL: the end), how many names, and released jobs.
-- Locks: free lanes' stripes, no wait; rows, SKIP LOCKED; indexes job_put_off, job_waits, job_lane.
-- Keeps: M60, no lane stands still for ever, and no job waits while a slot is free.
create or replace function {schema}.rooms_sweep(p_after text, p_limit int, p_counts boolean)
returns table (last_room text, rooms int, released int)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_kind text;
  v_lane text := case
    when p_after < 'group ' collate "C" then ''
    when p_after < 'group!' collate "C" then substr(p_after, 7)
  end;
  v_lanes text[] := '{}';
  v_rooms text[] := array(
    select {schema}.waited_for('breaker'::text, p_limit, greatest(p_after collate "C", 'breaker '))
  );
  v_missing text[];
begin
  released := {schema}.breaker_release(v_rooms);
  while cardinality(v_rooms) < p_limit loop
    v_lane := (
      select j.group_key
      from {schema}.job j
      where j.status = 'waiting'
        and j.group_key > v_lane
        -- It only makes job_lane look dearer than job_put_off to the planner.
        and (j.status, j.group_key) > ('waiting', v_lane)
      order by j.status, j.group_key
      limit 1
    );
    exit when v_lane is null;
    v_lanes := v_lanes || v_lane;
    v_rooms := v_rooms || ('group ' || v_lane);
  end loop;
  foreach v_kind in array array['queue', 'type'] loop
    v_rooms := v_rooms || array(
      select {schema}.waited_for(
        v_kind, p_limit - cardinality(v_rooms), greatest(p_after collate "C", v_kind || ' ')
      )
    );
  end loop;
  rooms := cardinality(v_rooms);
  last_room := v_rooms[p_limit];
  released := released + coalesce(
    (
      select sum({schema}.cap_release(r.room, least(1000, {schema}.cap_free(r.room)), true))
      from unnest(v_rooms) r(room)
      where r.room ~ '^(queue|type) '
    ),
    0
  );
  -- Last, because other sessions wait for stripes and for rows of running jobs.
  v_lanes := array(
    select distinct h.lane
    from {schema}.lane_heads(v_lanes) h
    where h.status = 'waiting'
  );
  if v_lanes <> '{}' then
    v_missing := {schema}.stripes_lock(array(select 'group ' || unnest(v_lanes)), 0);
    released := released + {schema}.lanes_promote(array(
      select l.lane
      from unnest(v_lanes) l(lane)
      where 'group ' || l.lane <> all (v_missing)
    ));
  end if;
  if p_counts then
    perform {schema}.caps_count();
  end if;
  return next;
end $$;
