-- Gives freed places of lanes and slots of caps (each room as often as it became free) to the jobs
-- that wait for them. Whoever ends jobs calls it in the same transaction, after its own row
-- changes. What is free under stripes that it does not get within p_wait_ms, a sweep finds.
-- Locks: the stripes of the lanes and caps; then rows, with SKIP LOCKED.
-- Keeps: M60, a lane goes on as soon as a place in it is free.
create or replace function {schema}.rooms_advance(p_rooms text[], p_wait_ms int)
returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_missing text[];
begin
  if coalesce(p_rooms, '{}') = '{}' then
    return;
  end if;
  v_missing := {schema}.stripes_lock(array(select distinct unnest(p_rooms)), p_wait_ms);
  perform {schema}.lanes_promote(array(
    select distinct substr(r.room, 7)
    from unnest(p_rooms) r(room)
    where r.room like 'group %'
      and r.room <> all (v_missing)
  ));
  perform {schema}.cap_release(r.room, count(*)::int, false)
  from unnest(p_rooms) r(room)
  where r.room not like 'group %'
    and r.room <> all (v_missing)
  group by r.room;
end $$;
