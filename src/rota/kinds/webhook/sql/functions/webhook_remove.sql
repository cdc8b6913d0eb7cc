-- Removes an endpoint and its list of deliveries. Waiting deliveries are cancelled when they are
-- due, even if a new endpoint has this name then. Returns whether there was an endpoint.
-- Locks: the row of the endpoint.
-- Keeps: M87, who and why.
create or replace function {schema}.webhook_remove(
  p_name text,
  p_why text default null,
  p_by text default null
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from {schema}.webhook_endpoint e
  where e.name = p_name;
  if found then
    if exists (select from {schema}.job_type t where t.breaker = 'webhook') then
      perform {schema}.breaker_reset('webhook', p_name, p_why, p_by);
    end if;
    perform {schema}.log_action('webhook_remove', p_why, p_by, p_detail => jsonb_build_object(
      'endpoint', p_name
    ));
    return true;
  end if;
  return false;
end $$;
revoke execute on function {schema}.webhook_remove(text, text, text) from public;
