-- Gives no start of a key before p_for has passed, because the called service wants no more. Jobs
-- that have a slot already still start.
-- Locks: the stripe of the key, for at most 5 s; index rate_limit_key_pkey.
-- Keeps: M62, for all workers.
create or replace function {schema}.worker_limit_delay(p_name text, p_key text, p_for interval)
returns void
language plpgsql security definer
as $$
declare
  v_limit {schema}.rate_limit := {schema}.limit_known(p_name);
  v_key text := {schema}.limit_key_check(v_limit, p_key);
begin
  if p_for is null or p_for not between interval '0' and interval '365 days' then
    raise invalid_parameter_value using message = 'a limit is delayed for 0 to 365 days';
  end if;
  perform {schema}.limit_lock(p_name, v_key);
  perform {schema}.limits_delay(
    array[{schema}.room_name('limit'::text, p_name, v_key)],
    array[extract(epoch from p_for)::float8]
  );
end $$;
revoke execute on function {schema}.worker_limit_delay(text, text, interval) from public;
