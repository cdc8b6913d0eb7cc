-- List the queues with their number of due jobs and of jobs to come, each counted up to a limit.
-- Parameters: limit int
-- Rows: queue text; priority int2; due int8; later int8;
--   oldest_run_at timestamptz (of jobs to come too);
--   oldest_due timestamptz; oldest_due_s float8
-- Locks: none; index job_ready.
-- Keeps: M85, with a bound on the rows read.
select
  c.queue,
  c.priority,
  c.due,
  c.later,
  c.oldest_at as oldest_run_at,
  case when c.due > 0 then c.oldest_at end as oldest_due,
  case when c.due > 0 then extract(epoch from :schema.clock() - c.oldest_at)::float8 end
    as oldest_due_s
from :schema.ready_counts(null::int, :limit::int) c
order by c.queue, c.priority desc
