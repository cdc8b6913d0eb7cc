-- Returns what failed too often within the period of a rule (for alert_matches): jobs that died and
-- wait for a person, of which it reads the newest 1,000 or as many as the rule asks for; or the
-- errors that too many different jobs had.
create or replace function {schema}.alert_failed(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select
    '',
    dead.jobs::float8,
    format(
      case
        when dead.jobs = 1 then '%s%s job died within %s and waits for a person: %s'
        else '%s%s jobs died within %s and wait for a person: %s'
      end,
      case when dead.jobs >= greatest(p_rule.at_least, 1000) then 'at least ' else '' end,
      dead.jobs, p_rule.period, {schema}.alert_names(dead.job_types)
    )
  from {schema}.dead_jobs(
    greatest(p_rule.at_least, 1000), {schema}.clock() - p_rule.period, p_rule.job_type
  ) dead
  where p_rule.kind = 'dead'
    and dead.jobs >= p_rule.at_least
  union all
  (
    select
      coalesce(failed.error_type, '?'),
      count(*)::float8,
      format(
        '%s failed with %s within %s: %s',
        case when count(*) = 1 then '1 job' else count(*) || ' different jobs' end,
        coalesce(failed.error_type, '?'), p_rule.period,
        {schema}.alert_names(array_agg(failed.job_type))
      )
    from (
      select distinct f.error_type, f.job_type, f.job
      from {schema}.alert_failures({schema}.clock() - p_rule.period, {schema}.clock()) f
      where p_rule.job_type is null
        or f.job_type = p_rule.job_type
    ) failed
    where p_rule.kind = 'same_error'
    group by failed.error_type
    having count(*) >= p_rule.at_least
    order by 2 desc
    limit 100
  )
$$;
