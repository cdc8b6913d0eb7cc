-- List the alerts in force or ended within the last day.
-- Parameters: none
-- Rows: rule text; subject text; state text; since timestamptz; last_notified_at timestamptz;
--   notifications int4; over_at timestamptz; value float8; message text; severity text
-- Locks: none.
-- Keeps: M86, a person can see what was found.
select
  rule, subject, state, since, last_notified_at, notifications, over_at, value, message, severity
from :schema.alert
where over_at is null
  or over_at > :schema.clock() - interval '1 day'
order by over_at is not null, since desc
