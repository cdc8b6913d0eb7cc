-- Gives no start of these keys ('limit NAME KEY') before so many seconds have passed, at most a
-- year. Returns the keys that it could not lock, which are not delayed.
-- Locks: the stripes of the keys, for 200 ms; index rate_limit_key_pkey.
-- Keeps: M62, for all workers.
create or replace function {schema}.limits_delay(p_rooms text[], p_delays_s float8[])
returns setof text
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_missing text[] := {schema}.stripes_lock(p_rooms, 200);
  v_room text;
  v_for_s float8;
  v_name text;
  v_now timestamptz := {schema}.moment();
  v_state {schema}.rate_limit_key;
begin
  for v_room, v_for_s in
    select d.room, max(least(d.delay_s, 365 * 86400))
    from unnest(p_rooms, p_delays_s) d(room, delay_s)
    where d.room <> all (v_missing)
    group by d.room
  loop
    v_name := split_part(v_room, ' ', 2);
    select (n.state).* into v_state
    from {schema}.limit_now(v_name, substr(v_room, length(v_name) + 8), v_now) n;
    continue when not found;
    v_state.held_to := greatest(v_state.held_to, v_now + v_for_s * interval '1 second');
    perform {schema}.limit_write(v_state);
  end loop;
  return query
  select distinct m.room
  from unnest(v_missing) m(room);
end $$;
