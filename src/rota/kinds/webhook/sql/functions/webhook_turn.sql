-- Turns an endpoint to p_to: 'paused': its deliveries wait; 'disabled': it gets no more, and
-- waiting deliveries die; 'on': as usual. Returns whether there is such an endpoint.
-- Locks: the row of the endpoint, then as breaker_trip or breaker_reset.
-- Keeps: M87, who and why.
create or replace function {schema}.webhook_turn(
  p_name text,
  p_to text,
  p_why text default null,
  p_by text default null
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_to, '') not in ('paused', 'disabled', 'on') then
    raise exception 'an endpoint is turned to paused, disabled or on, not %', coalesce(p_to, 'NULL')
      using errcode = 'invalid_parameter_value';
  end if;
  update {schema}.webhook_endpoint e
  set
    paused_at = case when p_to = 'paused' then {schema}.clock() end,
    disabled_at = case when p_to = 'disabled' then {schema}.clock() end,
    has_failed = false,
    why = case when p_to <> 'on' then {schema}.one_line(p_why, 500) end,
    by = coalesce({schema}.one_line(p_by, 200), session_user),
    failing_since = case when p_to <> 'on' then e.failing_since end,
    failures = case when p_to <> 'on' then e.failures else 0 end,
    changed_at = {schema}.clock()
  where e.name = p_name;
  if not found then
    return false;
  end if;
  -- The breaker spares workers a look at each waiting delivery. Before workers have declared the
  -- breaker, they look.
  if exists (select from {schema}.job_type t where t.breaker = 'webhook') then
    if p_to = 'paused' then
      perform {schema}.breaker_trip('webhook', p_name, null, p_why, p_by);
    else
      perform {schema}.breaker_reset('webhook', p_name, p_why, p_by);
    end if;
  end if;
  perform {schema}.log_action('webhook_' || p_to, p_why, p_by, p_detail => jsonb_build_object(
    'endpoint', p_name
  ));
  return true;
end $$;
revoke execute on function {schema}.webhook_turn(text, text, text, text) from public;
