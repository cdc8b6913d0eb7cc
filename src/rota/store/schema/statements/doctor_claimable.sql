-- Read how long the oldest due job has waited that a worker of the last hour could run: it has the
-- type and the queue, and the queue is not paused. Only the first jobs of each queue and priority
-- are read.
-- Parameters: heads int (how many jobs of each queue and priority)
-- Rows: facts text (JSON: claimable_s [NULL: there is no such job])
-- Locks: none; index job_ready.
-- Keeps: M85, jobs that wait for busy workers are not hidden by those that wait for something else.
with recent as materialized (
  select w.queues, w.job_types
  from :schema.workers_seen(interval '1 hour') w
),
due as materialized (
  select h.queue, h.job_type, min(h.run_at) as since
  from :schema.ready_heads(:heads::int) h
  where h.run_at <= :schema.clock()
  group by h.queue, h.job_type
)
select json_build_object(
  'claimable_s', extract(epoch from :schema.clock() - min(d.since))::float8
)::text as facts
from due d
where d.queue <> all (:schema.paused_queues(array(select distinct e.queue from due e)))
  and exists (
    select
    from recent w
    where w.queues ? d.queue
      and d.job_type = any (w.job_types)
  )
