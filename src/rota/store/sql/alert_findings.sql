-- Read what a rule finds now.
-- Parameters: rule text
-- Rows: subject text; value float8; message text
-- Locks: none; indexes job_dead, job_ready and attempt_finished, a bounded part of each.
-- Keeps: M86, at the same cost however many jobs there are.
select subject, value, message from rota.alert_findings(:rule::text)
