-- Takes p_n starts of a limit now, if they are free; returns whether it did. For work that is no
-- job and shares the budget of jobs. The lock on the key is kept until the transaction ends: take
-- them in a short one. SECURITY DEFINER: a role that is granted this function needs no right on a
-- table.
-- Locks: the stripe of the key, for at most 5 s; index rate_limit_key_pkey.
-- Keeps: M62, slots in any window of `per` cost at most `starts`.
create or replace function {schema}.limit_take(
  p_name text,
  p_key text default null,
  p_n int default 1
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit {schema}.rate_limit := {schema}.limit_known(p_name);
  v_key text := {schema}.limit_key_check(v_limit, p_key);
  v_spacing bigint := (
    select p.spacing
    from {schema}.limit_pace(v_limit.starts, v_limit.per, v_limit.burst) p
  );
  v_state {schema}.rate_limit_key;
  v_now timestamptz;
  v_before {schema}.rate_limit_key;
  v_base bigint;
  v_is_free boolean;
begin
  if p_n is null or p_n not between 1 and v_limit.burst then
    raise invalid_parameter_value using
      message = format(
        'from rate limit %L 1 to %s starts can be taken at once, its burst', p_name, v_limit.burst
      );
  end if;
  for n in 1 .. 50 loop
    exit when {schema}.limit_lock({schema}.limit_stripe(p_name, v_key));
    if n = 50 then
      raise lock_not_available using
        message = format('rate limit %L is locked by another transaction', p_name);
    end if;
  end loop;
  v_now := {schema}.clock();
  v_before := {schema}.limit_state(p_name, v_key);
  v_state := {schema}.limit_normal(v_before, v_spacing, v_now);
  v_state.name := p_name;
  v_state.key := v_key;
  v_base := {schema}.limit_base(v_state, v_spacing, v_limit.burst, v_now);
  v_is_free := v_base <= v_spacing * (v_limit.burst - p_n);
  if v_is_free then
    v_state.tat := v_now + (v_base + p_n * v_spacing) * interval '1 microsecond';
    v_state.spacing := v_spacing;
  end if;
  if v_is_free or v_state.tat < v_before.tat then
    perform {schema}.limit_write(v_state);
  end if;
  return v_is_free;
end $$;
revoke execute on function {schema}.limit_take(text, text, int) from public;
