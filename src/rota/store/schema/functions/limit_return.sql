-- Returns reservations whose jobs did not start: each with its limit, its key, and the from_at and
-- to_at of its reservation. Only the last reservation of a key goes back: then the clock stands at
-- what that left, and setting it to what it found gives the state in which it was never made. One
-- in the middle is lost, because those after it keep their slots.
-- Locks: the stripes of the keys, ascending, each for at most 100 ms; index rate_limit_key_pkey.
-- Keeps: M62, slots in any window of `per` cost at most `starts`.
create or replace function {schema}.limit_return(
  p_names text[],
  p_keys text[],
  p_from_at timestamptz[],
  p_to_at timestamptz[]
)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_one record;
  v_stripe int;
  v_is_free boolean;
  v_state {schema}.rate_limit_key;
  v_count int := 0;
  v_is_changed boolean;
begin
  for v_one in
    select
      i.name,
      i.key,
      {schema}.limit_stripe(i.name, i.key) as stripe,
      array_agg(i.from_at order by i.to_at desc) as from_at,
      array_agg(i.to_at order by i.to_at desc) as to_at
    from unnest(p_names, p_keys, p_from_at, p_to_at) i(name, key, from_at, to_at)
    group by i.name, i.key
    order by stripe, i.name, i.key
  loop
    if v_stripe is distinct from v_one.stripe then
      v_stripe := v_one.stripe;
      v_is_free := {schema}.limit_lock(v_stripe);
    end if;
    continue when not v_is_free;
    v_state := {schema}.limit_state(v_one.name, v_one.key);
    v_state := {schema}.limit_normal(v_state, v_state.spacing, {schema}.clock());
    v_is_changed := false;
    for n in 1 .. cardinality(v_one.to_at) loop
      if v_state.tat = v_one.to_at[n] then
        v_state.tat := v_one.from_at[n];
        v_count := v_count + 1;
        v_is_changed := true;
      end if;
    end loop;
    if v_is_changed then
      perform {schema}.limit_write(v_state);
    end if;
  end loop;
  return v_count;
end $$;
