-- Closes a breaker by hand, and forgets its failures. Without p_key: all keys. Returns how many
-- keys it closed or cleared. The first thousand waiting jobs are due with the commit; a worker
-- makes the rest due a moment later.
-- Locks: the rows of the breakers, in the order of their keys; then as breaker_release.
-- Keeps: M87, who and why; M63, the result of a trial that still runs does not count.
create or replace function {schema}.breaker_reset(
  p_name text,
  p_key text default null,
  p_why text default null,
  p_by text default null
)
returns int
language plpgsql security definer
as $$
declare
  v_count int;
begin
  perform {schema}.breaker_check(p_name, p_key);
  perform
  from {schema}.breaker b
  where b.name = p_name
    and (p_key is null or b.key = p_key)
  order by b.key
  for no key update;
  update {schema}.breaker b
  set
    state = 'closed',
    failed_at = '{}',
    openings = 0,
    open_until = null,
    trial_job = null,
    trial_claim = null,
    opened_at = null,
    closed_at = {schema}.clock(),
    forget_at = {schema}.clock() + interval '1 hour',
    reason = {schema}.one_line(p_why, 500),
    changed_at = {schema}.clock(),
    changed_by = coalesce({schema}.one_line(p_by, 200), session_user)
  where b.name = p_name
    and (p_key is null or b.key = p_key)
    and (b.state <> 'closed' or b.failed_at <> '{}');
  get diagnostics v_count = row_count;
  if v_count = 0 then
    return 0;
  end if;
  perform {schema}.breaker_release(
    {schema}.room_name('breaker'::text, p_name, coalesce(p_key, '')) || array(
      select {schema}.waited_for('breaker ' || p_name, 1000)
      where p_key is null
    )
  );
  perform {schema}.log_action(
    'breaker_reset'::text, p_why, p_by,
    p_detail => jsonb_strip_nulls(jsonb_build_object('breaker', p_name, 'key', p_key))
  );
  return v_count;
end $$;
revoke execute on function {schema}.breaker_reset(text, text, text, text) from public;
