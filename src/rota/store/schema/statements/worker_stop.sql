-- Record that a worker stopped, and its counters.
-- Parameters: name text; succeeded int8; failed int8; dead int8; rejected int8 (NULLs: as in its
--   last heartbeat)
-- Rows: name text
-- Locks: the worker's row.
-- Keeps: a release that was alive within the hour is still known.
update :schema.worker
set
  stopped_at = :schema.clock(),
  running = 0,
  succeeded = coalesce(:succeeded::int8, succeeded),
  failed = coalesce(:failed::int8, failed),
  dead = coalesce(:dead::int8, dead),
  rejected = coalesce(:rejected::int8, rejected)
where name = :name::text
returning name
