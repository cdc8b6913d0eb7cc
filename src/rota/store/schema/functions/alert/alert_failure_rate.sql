-- Returns whether attempts fail more often within the period of a rule than over the day before it
-- (for alert_matches). It reads that day only if enough attempts failed.
create or replace function {schema}.alert_failure_rate(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select
    '',
    recent.a_minute,
    format(
      '%s failures a minute over %s, usually %s: %s%s',
      round(recent.a_minute::numeric, 1), p_rule.period, round(usual.a_minute::numeric, 2),
      {schema}.alert_names(recent.types),
      '; by release ' || {schema}.alert_releases(recent.releases)
    )
  from (
    select
      array_agg(f.job_type) as types,
      array_agg(coalesce(f.release, {schema}.lost_release(f.worker, f.error_type))) as releases,
      count(*) * 60 / extract(epoch from case
        when count(*) < 10000 then p_rule.period
        -- More attempts failed than were read.
        else least(
          p_rule.period, greatest({schema}.clock() - min(f.finished_at), interval '1 second')
        )
      end)::float8 as a_minute
    from {schema}.alert_failures(
      {schema}.clock() - p_rule.period, {schema}.clock(), p_rule.job_type
    ) f
    having count(*) >= p_rule.at_least
  ) recent
  cross join lateral (
    select
      count(*) / greatest(
        60, extract(epoch from {schema}.clock() - p_rule.period - min(f.finished_at)) / 60
      )::float8 as a_minute
    from {schema}.alert_failures(
      {schema}.clock() - p_rule.period - interval '1 day',
      {schema}.clock() - p_rule.period,
      p_rule.job_type
    ) f
    where recent.types is not null  -- so it is read after the other
  ) usual
  where recent.a_minute >= p_rule.factor * usual.a_minute
$$;
