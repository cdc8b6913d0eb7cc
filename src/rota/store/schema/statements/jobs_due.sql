-- List the jobs that are due, in the order in which a worker would start them.
-- Parameters: limit int
-- Rows: id int8; job_type text
-- Locks: none; index job_ready.
-- Keeps: M50, a test runs all that is due; its tables are small.
select j.id, j.job_type
from :schema.job j
where j.status in ('queued', 'failed')
  and j.run_at <= :schema.clock()
  and j.queue <> all (:schema.paused_queues(array[j.queue]))
order by j.priority desc, j.run_at, j.id
limit :limit::int
