-- Returns what has held jobs back for longer than the period of a rule (for alert_matches):
-- breakers that are not closed; groups that a dead job halts; rate limits with a key whose last job
-- must wait for longer than that; schedules that have not fired; types whose payloads no release
-- reads; pauses with due jobs; the worker to which the database has refused something for the
-- longest time. In a restored copy, which runs nothing, a rule of pauses says so; only `rota check`
-- evaluates rules there.
create or replace function {schema}.alert_held(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select h.*
  from (select {schema}.clock() - p_rule.period as at) before
  cross join lateral (
    select
      concat_ws(' ', b.name, nullif(b.key, '')),
      extract(epoch from {schema}.clock() - b.opened_at)::float8,
      format(
        'breaker %s has been open since %s%s',
        concat_ws(' ', b.name, nullif(b.key, '')), {schema}.utc_text(b.opened_at), ': ' || b.reason
      )
    from {schema}.breaker b
    where p_rule.kind = 'breaker_open'
      and b.state <> 'closed'
      and b.opened_at < before.at
    union all
    select
      l.group_key,
      extract(epoch from {schema}.clock() - min(l.since))::float8,
      format(
        'ordered group %s has been halted since %s by job %s, which is dead (%s): '
          'retry or archive it',
        l.group_key,
        {schema}.utc_text(min(l.since)),
        min(l.job),
        coalesce((array_agg(l.error_type order by l.job))[1], 'no error')
      )
    from {schema}.lanes_halted(before.at, 1000) l
    where p_rule.kind = 'group_halted'
    group by l.group_key
    union all
    select
      substr(w.waits_for, length('limit ') + 1),
      extract(epoch from w.last_at - {schema}.clock())::float8,
      format(
        case
          when w.jobs = 1 then '%s job waits for rate limit %s, until %s'
          else '%s jobs wait for rate limit %s, the last of them until %s'
        end,
        case when w.jobs > counted.most then 'more than ' || counted.most else w.jobs::text end,
        substr(w.waits_for, length('limit ') + 1),
        {schema}.utc_text(w.last_at)
      )
    from (select greatest(p_rule.at_least, 1000) as most) counted
    cross join lateral {schema}.waits(
      'limit'::text, 1000, counted.most + 1, {schema}.clock() + p_rule.period
    ) w
    where p_rule.kind = 'limit_backlog'
      and w.jobs >= p_rule.at_least
    union all
    select
      s.name,
      extract(epoch from {schema}.clock() - s.since)::float8,
      case
        when s.stopped_why is not null
          then format('schedule %s is paused by Rota: %s', s.name, s.stopped_why)
        else format(
          'schedule %s was due at %s%s',
          s.name, {schema}.utc_text(s.since), ': ' || s.last_error
        )
      end
    from {schema}.schedules_overdue(p_rule.period, null::int) s
    where p_rule.kind = 'schedule_overdue'
      and s.since < before.at
    union all
    select
      u.job_type,
      u.jobs::float8,
      format(
        'jobs of type %s wait for a release that can read their payloads: %s; release %s cannot '
          '(%s); at %s they try again, and the next job is dead if no other is alive',
        u.job_type, u.jobs, array_to_string(u.releases, ', '), u.error, {schema}.utc_text(u.until)
      )
    from {schema}.payloads_unread(before.at, 100, 10000) u
    where p_rule.kind = 'payload_unread'
      and u.jobs >= p_rule.at_least
      and (p_rule.job_type is null or u.job_type = p_rule.job_type)
    union all
    select
      coalesce(p.queue, ''),
      extract(epoch from {schema}.clock() - p.since)::float8,
      format(
        '%s has been paused since %s by %s%s, and jobs are due: %s',
        coalesce('queue ' || p.queue, 'everything'),
        {schema}.utc_text(p.since), p.by, ': ' || p.why, p.due
      )
    from {schema}.pauses_with_due(before.at, 10000, p_rule.queue) p
    where p_rule.kind = 'paused'
      and p.due >= p_rule.at_least
      and (p_rule.queue is null or p.queue is null or p.queue = p_rule.queue)
    union all
    select '', 1, format('nothing runs until `rota queues resume --copy`: %s', i.facts ->> 'copied')
    from {schema}.installation_paused() i(facts)
    where p_rule.kind = 'paused'
      and i.facts ->> 'copied' is not null
    union all
    (
      select
        '',
        extract(epoch from {schema}.clock() - w.refused_since)::float8,
        format(
          'since %s the database refuses what worker %s must do: %s',
          {schema}.utc_text(w.refused_since), w.name, w.refused
        )
      from {schema}.worker w
      where p_rule.kind = 'refused'
        and w.refused is not null
        and w.refused_since < before.at
        and {schema}.is_alive(w.heartbeat_at, w.stopped_at)
      order by w.refused_since
      limit 1
    )
  ) h(subject, value, message)
  order by 2 desc
  limit 100
$$;
