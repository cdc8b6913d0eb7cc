-- Returns the rate limits with a key whose backlog is longer than the period of a rule (for
-- alert_matches): at least at_least jobs wait, the last until after that period. A rule reads 1,000
-- keys, and counts 10,000 jobs of each of the 100 worst.
create or replace function {schema}.alert_limits(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select
    substr(b.waits_for, length('limit ') + 1),
    extract(epoch from b.last_at - {schema}.clock())::float8,
    format(
      case
        when c.jobs = 1 then '%s job waits for rate limit %s, until %s'
        else '%s jobs wait for rate limit %s, the last of them until %s'
      end,
      case when c.jobs < 10000 then c.jobs::text else '10000 or more' end,
      substr(b.waits_for, length('limit ') + 1),
      {schema}.utc_text(b.last_at)
    )
  from (
    select w.waits_for, last.run_at as last_at
    from {schema}.waited_for('limit'::text, 1000) w(waits_for)
    cross join lateral (
      select j.run_at
      from {schema}.job j
      where j.waits_for = w.waits_for
        and j.status <> 'running'
      order by j.waits_for desc, j.priority, j.run_at desc, j.id desc
      limit 1
    ) last
    where last.run_at > {schema}.clock() + p_rule.period
    order by 2 desc
    limit 100
  ) b
  cross join lateral (
    select count(*) as jobs
    from (
      select from {schema}.job j
      where j.waits_for = b.waits_for
        and j.status <> 'running'
      limit 10000
    ) counted
  ) c
  where c.jobs >= p_rule.at_least
  order by 2 desc
$$;
