-- List the rules of alerts.
-- Parameters: none
-- Rows: name text; kind text; at_least int4; factor float8; period interval; queue text;
--   job_type text; severity text; critical_from int4; repeat_after interval; notify_job text;
--   enabled bool
-- Locks: none.
-- Keeps: M86, a person can see what alerts watch.
select
  name, kind,
  at_least, factor, period,
  queue, job_type,
  severity, critical_from, repeat_after, notify_job, enabled
from :schema.alert_rule
order by name
