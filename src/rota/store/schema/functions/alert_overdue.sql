-- Returns the schedules that are late by more than the period of a rule (for alert_matches). A
-- schedule that Rota paused, because it cannot run as it is, also counts as late. Not late: a
-- schedule that a person paused; one that a worker which has just started is about to fire, after a
-- time without workers; one that has been waiting since a pause of everything ended.
create or replace function {schema}.alert_overdue(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  with resumed as materialized (
    select max(a.at) as at
    from {schema}.alert_resumed(p_rule.period) a
    where a.queue is null
  ),
  worked as materialized (
    select coalesce(min(w.started_at), '-infinity') as since
    from {schema}.workers_seen(p_rule.period) w
  )
  select
    late.name,
    extract(epoch from {schema}.clock() - late.at)::float8,
    case
      when late.paused
        then format('schedule %s is paused by Rota: %s', late.name, late.why)
      else format(
        'schedule %s was due at %s%s',
        late.name, {schema}.utc_text(late.at), ': ' || late.last_error
      )
    end
  from (
    select
      s.name,
      s.paused_at is not null as paused,
      coalesce(s.paused_at, s.next_run_at, s.since) as at,
      s.paused_why as why,
      s.last_error
    from {schema}.schedule s
    where s.cron is not null
      and s.disabled_at is null
      and (s.paused_at is null or s.refused)
  ) late
  cross join resumed r
  cross join worked w
  where greatest(late.at, case when not late.paused then r.at end)
      < {schema}.clock() - p_rule.period
    and (late.paused or w.since < {schema}.clock() - least(p_rule.period, interval '1 minute'))
  order by 2 desc
  limit 100
$$;
