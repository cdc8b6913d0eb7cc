-- Returns the breakers that have not been closed for longer than the period of a rule (for
-- alert_matches).
create or replace function {schema}.alert_breakers(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select
    concat_ws(' ', b.name, nullif(b.key, '')),
    extract(epoch from {schema}.clock() - b.opened_at)::float8,
    format(
      'breaker %s has been open since %s%s',
      concat_ws(' ', b.name, nullif(b.key, '')), {schema}.utc_text(b.opened_at), ': ' || b.reason
    )
  from {schema}.breakers_open({schema}.clock() - p_rule.period, 100) b
$$;
