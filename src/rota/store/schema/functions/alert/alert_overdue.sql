-- Returns the schedules that have not fired for longer than a rule's period (for alert_matches).
create or replace function {schema}.alert_overdue(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
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
  where s.since < {schema}.clock() - p_rule.period
  order by 2 desc
  limit 100
$$;
