-- Gives no start of a key before p_for has passed: another side has said that it wants no more for
-- now. Jobs that are about to start wait too, those that other workers hold within a second.
-- SECURITY DEFINER: a role that is granted this function needs no right on a table.
-- Locks: the stripe of the key, for at most 5 s; index rate_limit_key_pkey.
-- Keeps: M62, for all workers.
create or replace function {schema}.limit_delay(p_name text, p_key text, p_for interval)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit {schema}.rate_limit := {schema}.limit_known(p_name);
  v_key text := {schema}.limit_key_check(v_limit, p_key);
  v_state {schema}.rate_limit_key;
begin
  if p_for is null or p_for not between interval '0' and interval '365 days' then
    raise invalid_parameter_value using message = 'a limit is delayed for 0 to 365 days';
  end if;
  for n in 1 .. 50 loop
    exit when {schema}.limit_lock({schema}.limit_stripe(p_name, v_key));
    if n = 50 then
      raise lock_not_available using
        message = format('rate limit %L is locked by another transaction', p_name);
    end if;
  end loop;
  v_state := {schema}.limit_state(p_name, v_key);
  v_state := {schema}.limit_normal(v_state, v_state.spacing, {schema}.clock());
  v_state.name := p_name;
  v_state.key := v_key;
  v_state.held_to := greatest(v_state.held_to, {schema}.clock() + p_for);
  v_state.moves := coalesce(v_state.moves, 0) + 1;
  perform {schema}.limit_write(v_state);
end $$;
revoke execute on function {schema}.limit_delay(text, text, interval) from public;
