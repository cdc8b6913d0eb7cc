-- Record that a worker stopped and waits for no jobs any more, and its counters.
-- Parameters: name text; succeeded int8; failed int8; dead int8; rejected int8 (NULLs: as before)
-- Rows: name text
-- Locks: the queues for which it waits, with SKIP LOCKED; then the worker.
-- Keeps: a release that was alive within the hour is still known.
with awaited as (
  select q.name, u.peer
  from :schema.queue q
  cross join pg_catalog.unnest(q.waiting) u(peer)
  where pg_catalog.split_part(u.peer, ' ', 2) = :name::text
  for update of q skip locked
),
left_out as (
  update :schema.queue q
  set waiting = pg_catalog.array_remove(q.waiting, a.peer)
  from awaited a
  where q.name = a.name
)
update :schema.worker
set
  stopped_at = :schema.clock(),
  running = 0,
  finished_per_s = :schema.per_second(
    :succeeded::int8 + :failed::int8 + :dead::int8 - succeeded - failed - dead,
    heartbeat_at
  ),
  succeeded = coalesce(:succeeded::int8, succeeded),
  failed = coalesce(:failed::int8, failed),
  dead = coalesce(:dead::int8, dead),
  rejected = coalesce(:rejected::int8, rejected)
where name = :name::text
returning name
