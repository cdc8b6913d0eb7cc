-- Returns the endpoints that were disabled because they failed.
create or replace function {schema}.webhook_findings()
returns table (subject text, message text, cure text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select
    e.name,
    format(
      'endpoint %s was disabled at %s: %s', e.name, {schema}.utc_text(e.disabled_at), e.why
    ),
    format(
      'ask its owner, then rota webhook enable %s, and rota webhook replay %s --since %sh',
      e.name,
      e.name,
      ceil(extract(epoch from {schema}.clock() - coalesce(e.failing_since, e.disabled_at)) / 3600)
        + 1
    )
  from {schema}.webhook_endpoint e
  where e.disabled_at is not null
    and e.has_failed
  order by e.disabled_at desc
  limit 100
$$;
