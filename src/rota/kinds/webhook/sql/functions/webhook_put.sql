-- Makes an endpoint, or changes its URL, and events and allow_private if given. A new host loses
-- allow_private if that is not given; a new URL begins without failures. For a new endpoint only:
-- p_account, p_in_order, and p_secret or p_fresh: 'whsec_' and base64, or sealed by rota.Secret.
-- p_secret is refused for an existing endpoint, p_fresh is not; both NULL: a random secret.
-- Returns the secret of a new endpoint, as text; a sealed secret as JSON.
-- Locks: the row of the endpoint.
-- Keeps: M87, who.
create or replace function {schema}.webhook_put(
  p_name text,
  p_url text,
  p_events text[] default null,
  p_account text default null,
  p_secret jsonb default null,
  p_fresh jsonb default null,
  p_in_order boolean default null,
  p_allow_private boolean default null,
  p_by text default null
)
returns table (secret text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_host constant text := '^https?://([^/?#]+)';
  v_wrong text := case
    when p_name !~ '^[A-Za-z0-9_.:@+-]{1,100}$' or p_name is null
      then 'a name has 1 to 100 of A-Z, a-z, 0-9 and _.:@+-'
    when length(p_account) not between 1 and 100
      then 'an account has 1 to 100 characters'
    when p_events = '{}' or array_ndims(p_events) > 1 or array_position(p_events, null) is not null
      or exists (
        select
        from unnest(p_events) asked(event)
        where asked.event !~ '^(\*|[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(\.\*)?)$'
      )
      then 'events are such as order.paid, order.* and *, at least one'
    else {schema}.webhook_url_refusal(p_url)
  end;
  v_there {schema}.webhook_endpoint;
begin
  if v_wrong is null then
    perform {schema}.webhook_secret_check(coalesce(p_secret, p_fresh));
    select e.* into v_there
    from {schema}.webhook_endpoint e
    where e.name = p_name
    for no key update;
    v_wrong := case
      when v_there.account <> p_account or v_there.in_order <> p_in_order
        then 'it is there, with another account or another in_order: remove it first'
      when v_there.id is not null and p_secret is not null
        then 'it is there, and has a secret: rotate that'
    end;
  end if;
  if v_wrong is not null then
    raise exception 'endpoint %: %', left(p_name, 100), v_wrong
      using errcode = 'invalid_parameter_value';
  end if;
  perform {schema}.log_action('webhook_put', null, p_by, p_detail => jsonb_strip_nulls(
    jsonb_build_object(
      'endpoint', p_name,
      'host', substring(lower(p_url) from v_host),
      'allow_private', p_allow_private
    )
  ));
  if v_there.id is not null then
    update {schema}.webhook_endpoint e
    set
      url = p_url,
      events = coalesce(p_events, e.events),
      allow_private = coalesce(
        p_allow_private,
        e.allow_private
          and substring(lower(p_url) from v_host) = substring(lower(e.url) from v_host)
      ),
      failing_since = case when e.url = p_url then e.failing_since end,
      failures = case when e.url = p_url then e.failures else 0 end,
      changed_at = {schema}.clock()
    where e.id = v_there.id;
    return;
  end if;
  return query
  insert into {schema}.webhook_endpoint as e (
    name, url, events, account, sealed, in_order, allow_private, by
  )
  values (
    p_name,
    p_url,
    coalesce(p_events, '{*}'),
    coalesce(p_account, ''),
    jsonb_build_array(jsonb_build_object(
      'secret', coalesce(p_secret, p_fresh, to_jsonb({schema}.webhook_new_secret()))
    )),
    coalesce(p_in_order, false),
    coalesce(p_allow_private, false),
    {schema}.one_line(p_by, 200)
  )
  on conflict (name) do nothing
  returning e.sealed #>> '{0,secret}';
  if not found then
    raise exception 'endpoint %: another call has just made it; repeat this one', p_name
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
revoke execute on function {schema}.webhook_put(
  text, text, text[], text, jsonb, jsonb, boolean, boolean, text
) from public;
