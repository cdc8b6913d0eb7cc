-- Say that a worker stopped, and forget those gone for a day.
-- Parameters: name text
-- Rows: name text
-- Locks: the worker's row, and those forgotten.
-- Keeps: a release that was alive within the hour is still known.
with gone as (
  delete from rota.worker where coalesce(stopped_at, heartbeat_at) < rota.clock() - interval '1 day')
update rota.worker set stopped_at = rota.clock(), running = 0 where name = :name::text returning name
