-- Returns what a rule finds now: its subjects, each with a figure, a sentence and its severity, the
-- worst 100 first. SECURITY DEFINER: a monitoring role needs no right to read payloads; it sees
-- only names of types, queues and errors.
-- Locks: none; indexes job_dead, job_ready, job_waits and attempt_finished, a bounded part of each.
-- Keeps: M86, the cost does not grow with the number of jobs.
create or replace function {schema}.alert_matches(p_rule text)
returns table (subject text, value float8, message text, severity text)
language plpgsql stable security definer
set enable_seqscan = off set enable_bitmapscan = off set jit = off set intervalstyle = 'postgres'
as $$
declare
  v_rule {schema}.alert_rule;
begin
  select r.* into v_rule
  from {schema}.alert_rule r
  where r.name = p_rule;
  if v_rule.kind in ('unclaimed', 'unknown_type', 'no_worker', 'schedule_overdue')
    and {schema}.is_paused()
  then
    return;  -- everything is paused
  end if;
  return query
  select
    m.subject, m.value, m.message,
    case
      when v_rule.kind in ('dead', 'same_error') and m.value >= v_rule.critical_from
        then 'critical'
      when v_rule.kind = 'paused' and {schema}.installation_paused() ->> 'copied' is not null
        then 'critical'
      else v_rule.severity
    end
  from (
    select d.* from {schema}.alert_dead(v_rule) d where v_rule.kind = 'dead'
    union all
    select e.* from {schema}.alert_same_error(v_rule) e where v_rule.kind = 'same_error'
    union all
    select f.* from {schema}.alert_failure_rate(v_rule) f where v_rule.kind = 'failure_rate'
    union all
    select w.*
    from {schema}.alert_waiting(v_rule) w
    where v_rule.kind in ('unclaimed', 'unknown_type', 'no_worker')
    union all
    select concat_ws(' ', p.package, p.subject), 1, concat_ws(': ', p.message, p.cure)
    from {schema}.package_findings() p
    where v_rule.kind = 'package'
    union all
    select b.*
    from {schema}.alert_held(v_rule) b
    where v_rule.kind in (
      'breaker_open', 'group_halted', 'limit_backlog', 'payload_unread', 'paused', 'refused',
      'schedule_overdue'
    )
  ) m;
end $$;
