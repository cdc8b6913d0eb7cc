-- Returns whether too many jobs died within the period of a rule and wait for a person (for
-- alert_matches): at_least of them, and with a factor as many times the mean of such a period, over
-- the day before it or since the first statistics of that day. It reads the newest 1,000, or as
-- many as the rule asks for; with a factor the newest 10,000 and the statistics of a day.
create or replace function {schema}.alert_dead(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select
    '',
    dead.jobs::float8,
    format(
      case
        when dead.jobs = 1 then '%s%s job died within %s%s and waits for a person: %s'
        else '%s%s jobs died within %s%s and wait for a person: %s'
      end,
      case when dead.jobs >= counted.most then 'at least ' end,
      dead.jobs, p_rule.period, ', usually ' || round(usual.jobs::numeric, 1) || ',',
      {schema}.alert_names(dead.job_types)
    )
  from (
    select
      case when p_rule.factor is null then greatest(p_rule.at_least, 1000) else 10000 end as most,
      {schema}.clock() - p_rule.period as since
  ) counted
  cross join lateral {schema}.dead_jobs(counted.most, counted.since, p_rule.job_type) dead
  cross join lateral (
    select
      sum(s.dead) * extract(epoch from p_rule.period)::float8 / 3600
      / greatest(1, floor(extract(epoch from counted.since - min(s.hour)) / 3600))::float8 as jobs
    from {schema}.stat_hour s
    where s.hour > counted.since - interval '25 hours'
      and s.hour <= counted.since - interval '1 hour'
      and (p_rule.job_type is null or s.job_type = p_rule.job_type)
      and p_rule.factor is not null
      and dead.jobs >= p_rule.at_least  -- so it is read after the other
  ) usual
  where dead.jobs >= p_rule.at_least
    and dead.jobs >= coalesce(p_rule.factor * usual.jobs, 0)
$$;
