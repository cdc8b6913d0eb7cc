-- Returns errors that too many different jobs had within a rule's period (for alert_matches).
create or replace function {schema}.alert_same_error(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select
    coalesce(one.error_type, '?'),
    count(*)::float8,
    format(
      '%s failed with %s within %s: %s',
      case when count(*) = 1 then '1 job' else count(*) || ' different jobs' end,
      coalesce(one.error_type, '?'), p_rule.period,
      {schema}.alert_names(array_agg(one.job_type))
    )
  from (
    select distinct f.error_type, f.job_type, f.job
    from {schema}.alert_failures(
      {schema}.clock() - p_rule.period, {schema}.clock(), p_rule.job_type
    ) f
  ) one
  group by one.error_type
  having count(*) >= p_rule.at_least
  order by 2 desc
  limit 100
$$;
