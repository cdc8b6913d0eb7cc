-- Opens a breaker by hand, for p_for; NULL: until a person resets it. Without p_key: all keys, or
-- the breaker itself if it has none. Its jobs wait; running jobs continue. Then one job tries, as
-- after failures; but after a trip of all keys, each key is as it was.
-- Locks: the row of the breaker; index breaker_pkey.
-- Keeps: M87, who and why.
create or replace function {schema}.breaker_trip(
  p_name text,
  p_key text default null,
  p_for interval default null,
  p_why text default null,
  p_by text default null
)
returns void
language plpgsql security definer
as $$
declare
  v_until timestamptz := {schema}.clock() + p_for;
begin
  perform {schema}.breaker_check(p_name, p_key);
  if p_for not between interval '1 millisecond' and interval '36525 days' then
    raise invalid_parameter_value using
      message = 'a breaker is opened for 1 millisecond to a hundred years';
  end if;
  insert into {schema}.breaker as b (
    name, key, state, open_until, opened_at, reason, changed_by
  )
  values (
    p_name, coalesce(p_key, ''), 'open', v_until, {schema}.clock(),
    {schema}.one_line(p_why, 500),
    coalesce({schema}.one_line(p_by, 200), session_user)
  )
  on conflict (name, key) do update
  set
    state = 'open',
    failed_at = '{}',
    open_until = excluded.open_until,
    trial_job = null,
    trial_claim = null,
    opened_at = coalesce(b.opened_at, excluded.opened_at),
    forget_at = null,
    reason = excluded.reason,
    changed_at = {schema}.clock(),
    changed_by = excluded.changed_by;
  perform {schema}.log_action(
    'breaker_trip'::text, p_why, p_by,
    p_detail => jsonb_strip_nulls(
      jsonb_build_object('breaker', p_name, 'key', p_key, 'until', v_until)
    )
  );
end $$;
revoke execute on function {schema}.breaker_trip(text, text, interval, text, text) from public;
