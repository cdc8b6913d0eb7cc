-- Promotes parked jobs whose lanes have a free place that nobody gave them: their holder was
-- cancelled in a transaction of the application's, deleted by hand, or its end could not wait for
-- the stripe. Reads up to p_limit lanes with parked jobs, in order, from behind p_after on. Returns
-- the last lane that it read (NULL: it came to the end), how many lanes that were, and how many
-- jobs it promoted.
-- Locks: the stripes of the lanes that have a free place, not waited for; indexes job_put_off and
--   job_lane.
-- Keeps: M60, no lane stands still for ever.
create or replace function {schema}.lanes_sweep(p_after text, p_limit int)
returns table (last_lane text, lanes int, promoted int)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
declare
  v_lanes text[] := '{}';
  v_free text[];
  v_missing text[];
begin
  last_lane := p_after;
  lanes := 0;
  promoted := 0;
  while lanes < p_limit loop
    last_lane := (
      select j.group_key
      from {schema}.job j
      where j.status = 'waiting'
        and j.group_key > last_lane
        -- It only makes job_lane look dearer than job_put_off to the planner.
        and (j.status, j.group_key) > ('waiting', last_lane)
      order by j.status, j.group_key
      limit 1
    );
    exit when last_lane is null;
    v_lanes := v_lanes || last_lane;
    lanes := lanes + 1;
  end loop;
  v_free := array(
    select distinct h.lane
    from {schema}.lane_heads(v_lanes) h
    where h.status = 'waiting'
  );
  if v_free <> '{}' then
    v_missing := {schema}.stripes_lock(array(select 'lane ' || unnest(v_free)), 0);
    promoted := {schema}.lanes_promote(array(
      select l.lane
      from unnest(v_free) l(lane)
      where 'lane ' || l.lane <> all (v_missing)
    ));
  end if;
  return next;
end $$;
