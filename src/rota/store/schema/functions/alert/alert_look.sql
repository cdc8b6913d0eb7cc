-- Evaluates rules. Returns for each after how many seconds it repeats a notification (NULL: never);
-- what alert_matches finds, and the notifications of its subjects so far, as JSON arrays; and how
-- long that took.
-- Locks: none; indexes as alert_matches, and alert_pkey.
-- Keeps: M86, a quiet minute of all rules is one statement.
create or replace function {schema}.alert_look(p_rules text[])
returns table (rule text, repeat_s float8, took_s float8, matches text, standing text)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_before timestamptz;
begin
  foreach rule in array p_rules loop
    v_before := clock_timestamp();
    repeat_s := (
      select extract(epoch from r.repeat_after)
      from {schema}.alert_rule r
      where r.name = rule
    );
    matches := (
      select coalesce(jsonb_agg(to_jsonb(m)), '[]')
      from {schema}.alert_matches(rule) m
    );
    standing := (
      select coalesce(
        jsonb_agg(jsonb_build_object(
          'subject', a.subject,
          'notifications', a.notifications,
          'is_over', a.over_at is not null,
          'missed', a.missed,
          'notified_s', extract(epoch from {schema}.clock() - a.last_notified_at),
          'severity', a.severity
        )),
        '[]'
      )
      from {schema}.alert a
      where a.rule = alert_look.rule
    );
    took_s := extract(epoch from clock_timestamp() - v_before);
    return next;
  end loop;
end $$;
