-- Find queues in which urgent jobs (priority above 0) wait for the running job: a declared type or
-- a waiting job is urgent there, and each worker of the last hour that serves it has one slot for
-- it. Workers in SQL are left out: their slots are not known.
-- Parameters: limit int
-- Rows: facts text (JSON: queues: queue, workers)
-- Locks: none; index job_ready.
-- Keeps: M61, a person can see that slow work delays urgent work.
with recent as materialized (
  select w.queues, w.slots
  from :schema.workers_seen(interval '1 hour') w
),
urgent as (
  select t.queue
  from :schema.job_type t
  where t.priority > 0
  union
  select h.queue
  from :schema.ready_heads(1) h
  where h.priority > 0
)
select json_build_object(
  'queues', (
    select coalesce(json_agg(q), '[]')
    from (
      select u.queue, count(*) as workers
      from urgent u
      join recent w on w.queues ? u.queue
      group by u.queue
      having bool_and(coalesce((w.queues ->> u.queue)::int, w.slots) = 1)
      order by u.queue
      limit :limit::int
    ) q
  )
)::text as facts
