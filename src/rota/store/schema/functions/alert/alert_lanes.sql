-- Returns the lanes that a dead job has halted for longer than a rule's period (for alert_matches).
create or replace function {schema}.alert_lanes(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select
    h.group_key,
    extract(epoch from {schema}.clock() - min(h.since))::float8,
    format(
      'ordered group %s has been halted since %s by job %s, which is dead (%s): '
        || 'retry or archive it',
      h.group_key,
      {schema}.utc_text(min(h.since)),
      min(h.job),
      coalesce((array_agg(h.error_type order by h.job))[1], 'no error')
    )
  from {schema}.lanes_halted({schema}.clock() - p_rule.period, 1000) h
  group by h.group_key
  order by 2 desc
  limit 100
$$;
