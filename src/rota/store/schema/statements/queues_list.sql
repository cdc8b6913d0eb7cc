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
  c.oldest_run_at,
  case when c.due > 0 then c.oldest_run_at end as oldest_due,
  case
    when c.due > 0
      then extract(epoch from :schema.clock() - c.oldest_run_at)::float8
  end as oldest_due_s
from (
  select
    q.queue,
    q.priority,
    (
      select count(*)
      from (
        select from :schema.job j
        where j.queue = q.queue
          and j.priority = q.priority
          and j.status in ('queued', 'failed')
          and j.run_at <= :schema.clock()
        limit :limit::int
      ) counted
    ) as due,
    (
      select count(*)
      from (
        select from :schema.job j
        where j.queue = q.queue
          and j.priority = q.priority
          and j.status in ('queued', 'failed')
          and j.run_at > :schema.clock()
        limit :limit::int
      ) counted
    ) as later,
    (
      select min(j.run_at)
      from :schema.job j
      where j.queue = q.queue
        and j.priority = q.priority
        and j.status in ('queued', 'failed')
    ) as oldest_run_at
  from :schema.ready_queues() q(queue, priority)
) c
order by c.queue, c.priority desc
