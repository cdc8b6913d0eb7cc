-- Returns the breakers that have not been closed for longer than the period of a rule (for
-- alert_matches): open, or with a trial under way.
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
  from {schema}.breaker b
  where b.state <> 'closed'
    and b.opened_at < {schema}.clock() - p_rule.period
  order by b.opened_at
  limit 100
$$;
