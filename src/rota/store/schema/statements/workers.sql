-- List the workers of the last hour.
-- Parameters: none
-- Rows: name text; host text; pid int4; version text; release text; job_types text[]; queues text;
--   running int4; started_at timestamptz; heartbeat_at timestamptz; stopped_at timestamptz
-- Locks: none; index job_lease for workers in another language, which do not count their running
--   jobs.
-- Keeps: M86, a person can see that no worker is alive.
with held as materialized (
  select r.worker, count(*)::int as jobs
  from :schema.running_jobs(1000) r
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
  case
    when w.version = 'sql'
      then coalesce((select h.jobs from held h where h.worker = w.name), 0)
    else w.running
  end as running,
  w.started_at,
  w.heartbeat_at,
  w.stopped_at
from :schema.worker w
where :schema.last_seen(w.heartbeat_at, w.stopped_at) > :schema.clock() - interval '1 hour'
order by w.started_at
