-- Read in how many seconds, up to ten, the next job is due that a limit put off beyond an instant.
-- Parameters: queues text[]; priorities int2[] (parallel); types text[]; after timestamptz
-- Rows: due_in_s float8 (NULL: there is none).
-- Locks: none; index job_ready.
-- Keeps: M62, a drain also starts what its limits let start a little later.
select extract(epoch from min(next.run_at) - :schema.clock())::float8 as due_in_s
from unnest(:queues::text[], :priorities::int2[]) b(queue, priority)
cross join lateral (
  select j.run_at
  from :schema.job j
  where j.queue = b.queue
    and j.priority = b.priority
    and j.status in ('queued', 'failed')
    and j.run_at > :after::timestamptz
    and j.run_at < :schema.clock() + interval '10 seconds'
    and j.waits_for like 'limit %'
    and j.job_type = any (:types::text[])
  order by j.run_at, j.id
  limit 1
) next
where b.queue <> all (:schema.paused_queues(:queues::text[]))
