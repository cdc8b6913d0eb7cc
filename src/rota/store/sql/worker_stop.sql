-- Say that a worker stopped.
-- Parameters: name text
-- Rows: name text
-- Locks: the worker's row.
-- Keeps: a release that was alive within the hour is still known.
update rota.worker set stopped_at = rota.clock(), running = 0 where name = :name::text returning name
