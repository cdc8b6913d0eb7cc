-- Notes how an endpoint has responded at this URL; workers call it after a failure, and after the
-- success that ends a row of failures. p_gone: the endpoint said that it is gone for good. Then it
-- is disabled, and so is an endpoint that failed for five days and 20 times without a success: the
-- reason is returned. If the endpoint has another URL by now, nothing is noted.
-- Locks: the row of the endpoint.
-- Keeps: M71, one endpoint that is down for ever does not cost for ever.
create or replace function {schema}.webhook_note(
  p_id bigint,
  p_url text,
  p_ok boolean,
  p_gone boolean,
  p_response text
)
returns setof text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := {schema}.clock();
begin
  if p_ok then
    update {schema}.webhook_endpoint e
    set failing_since = null, failures = 0
    where e.id = p_id
      and e.url = p_url
      and e.failing_since is not null;
    return;
  end if;
  update {schema}.webhook_endpoint e
  set failing_since = coalesce(e.failing_since, v_now), failures = e.failures + 1
  where e.id = p_id
    and e.url = p_url;
  return query
  update {schema}.webhook_endpoint e
  set
    disabled_at = v_now,
    has_failed = true,
    by = 'rota',
    why = {schema}.one_line(
      case
        when p_gone then 'it responded with 410: it is gone'
        else format(
          'since %s only failures, %s of them, the last: %s',
          {schema}.utc_text(e.failing_since), e.failures, p_response
        )
      end,
      500
    ),
    changed_at = v_now
  where e.id = p_id
    and e.url = p_url
    and e.disabled_at is null
    and (p_gone or e.failures >= 20 and e.failing_since <= v_now - interval '5 days')
  returning e.why;
end $$;
revoke execute on function {schema}.webhook_note(bigint, text, boolean, boolean, text) from public;
