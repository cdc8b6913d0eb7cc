-- Write a worker's heartbeat and counters, and count the live workers that share a queue with it.
-- Parameters: name text; host text; pid int; version text; release text; job_types text[];
--   queues text (JSON: slots by queue); slots int (in all); running int; succeeded int8;
--   failed int8; dead int8; rejected int8 (results that came too late to be written); refused text
--   (parts of it that the database refuses, and why); secret_keys text[] (ids of the keys with
--   which it opens secrets)
-- Rows: workers int8
-- Locks: the worker's row.
-- Keeps: M13, which worker and release ran a job; it is known which releases could read a payload.
insert into :schema.worker as w (
  name, host, pid, version, release,
  job_types, queues, slots,
  running, succeeded, failed, dead, rejected, refused, secret_keys
)
values (
  :name::text, :host::text, :pid::int, :version::text, :release::text,
  :job_types::text[], :queues::text::jsonb, :slots::int,
  :running::int, :succeeded::int8, :failed::int8, :dead::int8, :rejected::int8,
  :refused::text, :secret_keys::text[]
)
on conflict (name) do update
set
  heartbeat_at = :schema.clock(),
  finished_per_s = :schema.per_second(
    excluded.succeeded + excluded.failed + excluded.dead - w.succeeded - w.failed - w.dead,
    w.heartbeat_at
  ),
  running = excluded.running,
  succeeded = excluded.succeeded,
  failed = excluded.failed,
  dead = excluded.dead,
  rejected = excluded.rejected,
  refused = excluded.refused,
  refused_since = case
    when excluded.refused is not null then coalesce(w.refused_since, :schema.clock())
  end
returning (
  select count(*)
  from :schema.worker a
  where :schema.is_alive(a.heartbeat_at, a.stopped_at)
    and a.name <> w.name
    and (a.queues ?| array(select pg_catalog.jsonb_object_keys(w.queues))) is true
) + 1 as workers
