-- Disable what the newest release has not declared for an hour.
-- Parameters: none
-- Rows: name text
-- Locks: the rows of those schedules.
-- Keeps: what the code no longer declares does not run for ever, and a deploy with two releases side by side stops nothing.
select d as name from rota.schedules_disable() d
