-- List the workers of the last hour.
-- Parameters: counted int (most running jobs to count)
-- Rows: name text; host text; pid int4; version text; release text; job_types text[]; queues text;
--   running int4; started_at timestamptz; heartbeat_at timestamptz; stopped_at timestamptz;
--   state text (as of liveness_of)
-- Locks: none; index job_lease.
-- Keeps: M86, a person can see that no worker is alive.
with held as materialized (
  select r.worker, count(*)::int as jobs
  from :schema.running_jobs(:counted::int) r
  group by r.worker
)
select
  w.name,
  w.host,
  w.pid,
  w.version,
  w.release,
  w.job_types,
  w.queues::text as queues,
  coalesce((select h.jobs from held h where h.worker = w.name), 0) as running,
  w.started_at,
  w.heartbeat_at,
  w.stopped_at,
  :schema.liveness_of(w.heartbeat_at, w.stopped_at) as state
from :schema.workers_seen(interval '1 hour') w
order by w.started_at
