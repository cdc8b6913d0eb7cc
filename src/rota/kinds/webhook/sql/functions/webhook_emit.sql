-- Enqueues a delivery for each endpoint that asks for the event, is not disabled and has no
-- delivery of the event yet, also none that was erased. Returns the new deliveries. p_account: the
-- endpoints of this account; NULL: endpoints without an account. p_only: this endpoint alone,
-- whatever it asks for. p_meta: meta of the jobs. An endpoint that asks for order.* asks for all
-- that begin with order.
-- SECURITY DEFINER: a role that is granted this function needs no right on a table.
-- Locks: the rows of the endpoints, so that none is removed meanwhile; then the new rows of
--   webhook_delivery; both in the order of the endpoints' ids.
-- Keeps: M71, one delivery for each endpoint and event id; M20, in the caller's transaction.
create or replace function {schema}.webhook_emit(
  p_event text,
  p_event_id text,
  p_data jsonb default '{}',
  p_account text default null,
  p_only text default null,
  p_meta jsonb default null
)
returns table (endpoint text, job bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off
as $$
#variable_conflict use_column
declare
  v_at text := to_char({schema}.clock() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
  v_asked bigint[];
begin
  if coalesce(p_event, '') !~ '^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$' or length(p_event) > 100 then
    raise exception 'an event is words of A-Z, a-z, 0-9 and _ with dots between, not %', p_event
      using errcode = 'invalid_parameter_value';
  elsif coalesce(p_event_id, '') !~ '^[A-Za-z0-9_:@+=-]{1,150}$' then
    raise exception
      'an event id has 1 to 150 of A-Z, a-z, 0-9 and _:@+=-, not %', p_event_id
      using errcode = 'invalid_parameter_value';
  elsif jsonb_typeof(coalesce(p_data, '{}')) <> 'object' then
    raise exception 'the data of an event is an object of JSON'
      using errcode = 'invalid_parameter_value';
  end if;
  v_asked := array(
    select e.id
    from {schema}.webhook_endpoint e
    where p_only is null
      and e.account = coalesce(p_account, '')
      and exists (
        select
        from unnest(e.events) asked(event)
        where asked.event in ('*', p_event)
          or right(asked.event, 2) = '.*' and starts_with(p_event, left(asked.event, -1))
      )
    union all
    select e.id
    from {schema}.webhook_endpoint e
    where e.name = p_only
  );
  return query
  with asked as materialized (
    -- An endpoint that was removed meanwhile is not in these rows.
    select e.id, e.name, e.in_order
    from {schema}.webhook_endpoint e
    where e.id = any (v_asked)
      and e.disabled_at is null
    order by e.id
    for key share
  ),
  fresh as (
    insert into {schema}.webhook_delivery as d (endpoint, event_id, event, job)
    select a.id, p_event_id, p_event, nextval('{schema}.job_id_seq')
    from asked a
    where not exists (
      select
      from {schema}.webhook_delivery erased
      where erased.endpoint = a.id
        and erased.event_id = {schema}.key_hash(p_event_id)
    )
    order by a.id
    on conflict do nothing
    returning d.endpoint as id, d.job
  ),
  enqueued as (
    insert into {schema}.job as j (id, job_type, payload, group_key, meta)
    select
      f.job,
      case when a.in_order then 'webhook.ordered' else 'webhook' end,
      jsonb_build_object(
        'endpoint', a.name,
        'endpoint_id', a.id,
        'event_id', p_event_id,
        'event', p_event,
        'at', v_at,
        'data', coalesce(p_data, '{}')
      ),
      'webhook:' || a.name,
      p_meta
    from fresh f
    join asked a on a.id = f.id
    order by f.job
  )
  select a.name, f.job
  from fresh f
  join asked a on a.id = f.id
  order by a.name;
end $$;
revoke execute on function {schema}.webhook_emit(text, text, jsonb, text, text, jsonb) from public;
