-- List the concurrency limits of queues and job types.
-- Parameters: none
-- Rows: kind text (queue or type); name text; max_running int4; running int4;
--   blocked int4; blocked_since timestamptz
-- Locks: none; indexes queue_capped, job_type_capped and job_waits.
-- Keeps: M60, what holds a job back is visible.
select c.kind, c.name, c.max_running, c.running, c.blocked, c.blocked_since
from :schema.concurrency_limits c
order by c.kind, c.name
