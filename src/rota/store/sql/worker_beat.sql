-- Say that a worker is alive, and learn how many are.
-- Parameters: name text; host text; pid int; version text; release text; job_types text[]; queues text (JSON: slots by queue); running int
-- Rows: workers int8
-- Locks: the worker's row.
-- Keeps: M13, which worker and release ran a job; who could read a payload is known.
insert into rota.worker as w (name, host, pid, version, release, job_types, queues, running)
values (:name::text, :host::text, :pid::int, :version::text, :release::text, :job_types::text[], :queues::text::jsonb, :running::int)
on conflict (name) do update set heartbeat_at = rota.clock(), running = excluded.running
returning (select count(*) from rota.worker a where a.stopped_at is null and a.heartbeat_at > rota.clock() - interval '1 minute' and a.name <> w.name) + 1
  as workers
