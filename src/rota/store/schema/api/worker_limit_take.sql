-- Takes p_n starts of a limit now, if they are free; returns whether it did. For work outside of
-- jobs that shares their budget. The lock stays until the transaction ends: keep it short.
-- Locks: the stripe of the key, for at most 5 s; index rate_limit_key_pkey.
-- Keeps: M62, slots in any window of `per` cost at most `starts`.
create or replace function {schema}.worker_limit_take(
  p_name text,
  p_key text default null,
  p_n int default 1
)
returns boolean
language plpgsql security definer
as $$
declare
  v_limit {schema}.rate_limit := {schema}.limit_known(p_name);
  v_key text := {schema}.limit_key_check(v_limit, p_key);
  v_at timestamptz;
  v_before {schema}.rate_limit_key;
  v_now record;
  v_state {schema}.rate_limit_key;
  v_is_free boolean;
begin
  if p_n is null or p_n not between 1 and v_limit.burst then
    raise invalid_parameter_value using
      message = format(
        'from rate limit %L 1 to %s starts can be taken at once, its burst', p_name, v_limit.burst
      );
  end if;
  perform {schema}.limit_lock(p_name, v_key);
  v_at := {schema}.moment();
  v_before := {schema}.limit_state(p_name, v_key);
  select n.* into v_now
  from {schema}.limit_now(p_name, v_key, v_at) n;
  v_state := v_now.state;
  v_is_free := v_now.base <= v_now.spacing * (v_now.burst - p_n);
  if v_is_free then
    v_state.tat := v_at + (v_now.base + p_n * v_now.spacing) * interval '1 microsecond';
    v_state.spacing := v_now.spacing;
  end if;
  if v_is_free or v_state.tat < v_before.tat then
    perform {schema}.limit_write(v_state);
  end if;
  return v_is_free;
end $$;
revoke execute on function {schema}.worker_limit_take(text, text, int) from public;
