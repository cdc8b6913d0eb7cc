-- Returns whether too many jobs died within the period of a rule and wait for a person (for
-- alert_matches). It reads the newest 1,000, or as many as the rule asks for.
create or replace function {schema}.alert_dead(p_rule {schema}.alert_rule)
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
  where dead.jobs >= p_rule.at_least
$$;
