-- List the caps of queues and job types.
-- Parameters: none
-- Rows: kind text (queue or type); name text; most int4; running int4; parked int4;
--   parked_since timestamptz
-- Locks: none; indexes queue_capped, job_type_capped and job_waits.
-- Keeps: M60, what holds a job back is visible.
select c.kind, c.name, c.most, c.running, c.parked, c.parked_since
from :schema.caps c
order by c.kind, c.name
