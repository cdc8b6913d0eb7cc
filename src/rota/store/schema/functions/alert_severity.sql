-- Returns how severe it is that a rule found so many jobs (for alert_matches).
create or replace function {schema}.alert_severity(p_rule {schema}.alert_rule, p_jobs float8)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when p_jobs >= p_rule.critical_from then 'critical' else p_rule.severity end
$$;
