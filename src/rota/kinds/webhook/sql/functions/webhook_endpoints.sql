-- Lists endpoints by name, without secrets. p_account: only endpoints of this account; p_name: only
-- the endpoint of this name.
-- Locks: none.
create or replace function {schema}.webhook_endpoints(
  p_account text default null,
  p_name text default null
)
returns table (
  name text,
  account text,
  url text,
  events text[],
  state text,
  why text,
  by text,
  failing_since timestamptz,
  failures int,
  in_order boolean,
  allow_private boolean,
  created_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select
    e.name,
    nullif(e.account, ''),
    e.url,
    e.events,
    case
      when e.disabled_at is not null then 'disabled'
      when e.paused_at is not null then 'paused'
      when e.failing_since is not null then 'failing'
      else 'on'
    end,
    e.why,
    e.by,
    e.failing_since,
    e.failures,
    e.in_order,
    e.allow_private,
    e.created_at
  from {schema}.webhook_endpoint e
  where (p_account is null or e.account = p_account)
    and (p_name is null or e.name = p_name)
  order by e.name
$$;
revoke execute on function {schema}.webhook_endpoints(text, text) from public;
