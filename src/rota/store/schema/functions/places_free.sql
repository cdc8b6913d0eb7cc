-- Gives the places that became free in these lanes, and the slots in these caps (each as often as
-- it became free), to the jobs that wait for them. Whoever ends jobs calls it in the same
-- transaction, after its own row changes. Of stripes that it does not get within p_wait_ms, a sweep
-- finds what is free.
-- Locks: the stripes of the lanes and caps; then rows, with SKIP LOCKED.
-- Keeps: M60, a lane goes on as soon as a place in it is free.
create or replace function {schema}.places_free(p_lanes text[], p_caps text[], p_wait_ms int)
returns void
language plpgsql
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
declare
  v_missing text[];
begin
  if p_lanes is null and p_caps is null then
    return;
  end if;
  v_missing := {schema}.stripes_lock(
    array(
      select 'lane ' || unnest(p_lanes)
      union
      select unnest(p_caps)
    ),
    p_wait_ms
  );
  perform {schema}.lanes_promote(array(
    select distinct l.lane
    from unnest(p_lanes) l(lane)
    where 'lane ' || l.lane <> all (v_missing)
  ));
  perform {schema}.cap_release(c.cap, count(*)::int, false)
  from unnest(p_caps) c(cap)
  where c.cap <> all (v_missing)
  group by c.cap;
end $$;
