-- Find the types of due jobs in these queues that no worker of the last minute knows. It reads the
-- first jobs of each queue and priority, not of paused queues.
-- Parameters: queues text[]; heads int (how many jobs of each queue and priority); limit int
-- Rows: job_type text; jobs int8
-- Locks: none; index job_ready.
-- Keeps: M85, a worker tells of a handler that nobody imported.
select d.job_type, sum(d.jobs)::int8 as jobs
from :schema.due_facts(
  :schema.clock(), interval '1 minute', :heads::int, null::text, false
) d
where d.queue = any (:queues::text[])
  and d.served
  and not d.known
group by d.job_type
order by d.job_type
limit :limit::int
