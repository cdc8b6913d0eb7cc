-- Say that a worker is alive, and what it has counted since it began, and learn how many are.
-- Parameters: name text; host text; pid int; version text; release text; job_types text[]; queues text (JSON: slots by queue); slots int (in all);
--   running int; succeeded int8; failed int8; dead int8; rejected int8 (what it came too late to write)
-- Rows: workers int8
-- Locks: the worker's row.
-- Keeps: M13, which worker and release ran a job; who could read a payload is known.
insert into :schema.worker as w (name, host, pid, version, release, job_types, queues, slots, running, succeeded, failed, dead, rejected)
values (:name::text, :host::text, :pid::int, :version::text, :release::text, :job_types::text[], :queues::text::jsonb, :slots::int, :running::int,
  :succeeded::int8, :failed::int8, :dead::int8, :rejected::int8)
on conflict (name) do update set heartbeat_at = :schema.clock(), running = excluded.running, succeeded = excluded.succeeded, failed = excluded.failed,
  dead = excluded.dead, rejected = excluded.rejected
returning (select count(*) from :schema.worker a where a.stopped_at is null and a.heartbeat_at > :schema.clock() - interval '1 minute' and a.name <> w.name) + 1
  as workers
