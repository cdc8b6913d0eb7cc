-- Writes the decisions about a rule's subjects. p_steps is an array of objects: step (fires,
-- repeats, over, missed, still), subject, notifications (the count that was read; 0: no row), match
-- (value, message, severity; or null). Returns the rows of the notifications to send, as JSON. A
-- step is left out if another worker has written a notification for its subject since. A job of the
-- rule's type, if any, is enqueued in the same transaction; an error that prevents it is returned
-- as problem. The rule is not evaluated again before p_pause has passed.
-- Locks: the row of the rule, then the rows of its alerts, by subject.
-- Keeps: M86, each notification is written once: the statement names the count that was read.
create or replace function {schema}.alert_write(p_rule text, p_steps jsonb, p_pause interval)
returns table (told text, problem text)
language plpgsql
as $$
declare
  v_rule {schema}.alert_rule;
  v_step record;
  v_alert {schema}.alert;
begin
  update {schema}.alert_rule r
  set due_at = greatest(r.due_at, {schema}.clock() + p_pause)
  where r.name = p_rule
  returning r.* into v_rule;
  if not found then
    return;
  end if;
  for v_step in
    select
      s.step, s.subject, s.notifications,
      (s.match ->> 'value')::float8 as value,
      s.match ->> 'message' as message,
      s.match ->> 'severity' as severity
    from jsonb_to_recordset(p_steps) s(step text, subject text, notifications int, match jsonb)
    order by s.subject
  loop
    if v_step.step in ('missed', 'still') then
      update {schema}.alert a
      set
        missed = case when v_step.step = 'missed' then a.missed + 1 else 0 end,
        value = coalesce(v_step.value, a.value),
        message = coalesce(v_step.message, a.message)
      where a.rule = p_rule
        and a.subject = v_step.subject
        and a.notifications = v_step.notifications;
      continue;
    end if;
    insert into {schema}.alert as a (
      rule, subject, state, severity, since, last_notified_at, notifications, value, message
    )
    select
      p_rule, v_step.subject, v_step.step, coalesce(v_step.severity, v_rule.severity),
      {schema}.clock(), {schema}.clock(), 1,
      coalesce(v_step.value, 0), coalesce(v_step.message, '')
    where v_step.step = 'fires'
      or exists (select from {schema}.alert e where e.rule = p_rule and e.subject = v_step.subject)
    on conflict (rule, subject) do update
    set
      state = excluded.state,
      last_notified_at = {schema}.clock(),
      notifications = a.notifications + 1,
      missed = 0,
      post_at = null,
      since = case when excluded.state = 'fires' then {schema}.clock() else a.since end,
      over_at = case when excluded.state = 'over' then {schema}.clock() end,
      severity = case when excluded.state = 'over' then a.severity else excluded.severity end,
      value = case when excluded.state = 'over' then a.value else excluded.value end,
      message = case when excluded.state = 'over' then a.message else excluded.message end
    where a.notifications = v_step.notifications
    returning a.* into v_alert;
    continue when not found;
    told := to_jsonb(v_alert);
    problem := null;
    if v_rule.notify_job is not null then
      begin
        insert into {schema}.job (job_type, payload, idempotency_key, meta)
        values (
          v_rule.notify_job,
          jsonb_build_object(
            'rule', p_rule,
            'subject', v_alert.subject,
            'state', v_alert.state,
            'severity', v_alert.severity,
            'since', v_alert.since,
            'value', v_alert.value,
            'message', v_alert.message
          ),
          'alert:' || md5(
            concat_ws(chr(10), p_rule, v_alert.subject, v_alert.since, v_alert.notifications)
          ),
          '{"rota.alert": true}'
        );
      exception when others then
        problem := sqlerrm;
      end;
    end if;
    return next;
  end loop;
end $$;
