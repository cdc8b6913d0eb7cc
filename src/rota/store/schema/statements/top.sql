-- Read everything that a frame of the live view shows.
-- Parameters: queues int (most pairs of queue and priority); counted int (most jobs to count of
--   each); held int (most running jobs to count); batches int (most batches); listed int (most rows
--   of each other kind)
-- Rows: facts text (JSON: at; counted_to; queues: queue, priority, due, later, oldest_due,
--   oldest_due_s; paused: names; paused_all: as of installation_paused; running: id, job_type,
--   worker, ran_s, done, total, note; running_count: of all; running_by_queue: of each; workers:
--   name, release, running, slots, silent_s, quiet_s [since last_seen], up_s, heartbeat_at,
--   stopped, is_alive, state [of liveness_of], succeeded, failed, dead, of which the last three
--   are NULL for a worker in another language; finished_per_s: of the workers that were seen within
--   a heartbeat; waits: as of waits_now; batches: id, total, succeeded, dead, cancelled, made_s, of
--   batches that have not ended; errors: job, job_type, attempt, outcome, error_type, message,
--   ago_s; dead)
-- Locks: none; indexes job_ready, job_lease, job_dead, job_waits, job_put_off, attempt_finished,
--   batch_live.
-- Keeps: M85, with a bound on the rows read.
with held as materialized (
  select r.worker, r.queue, count(*)::int as jobs
  from :schema.running_jobs(:held::int) r
  group by r.worker, r.queue
)
select json_build_object(
  'at', :schema.clock(),
  'counted_to', :counted::int,
  'queues', (
    select coalesce(json_agg(q), '[]')
    from (
      select
        c.queue,
        c.priority,
        c.due,
        c.later,
        case when c.due > 0 then c.oldest_at end as oldest_due,
        case
          when c.due > 0 then extract(epoch from :schema.clock() - c.oldest_at)::float8
        end as oldest_due_s
      from :schema.ready_counts(:queues::int, :counted::int) c
    ) q
  ),
  'paused', (
    select coalesce(json_agg(q.name order by q.name), '[]')
    from :schema.queue q
    where :schema.is_in_force(q.paused_at, q.paused_until)
  ),
  'paused_all', :schema.installation_paused(),
  'running', (
    select coalesce(json_agg(j), '[]')
    from (
      select
        r.id,
        r.job_type,
        r.worker,
        extract(epoch from :schema.clock() - r.started_at)::float8 as ran_s,
        r.progress -> 'done'::text as done,
        r.progress -> 'total'::text as total,
        r.progress ->> 'note'::text as note
      from :schema.running_jobs(:listed::int) r
      order by r.started_at, r.id
    ) j
  ),
  'running_count', (select coalesce(sum(h.jobs), 0) from held h),
  'running_by_queue', (
    select coalesce(json_object_agg(q.queue, q.jobs), '{}')
    from (select h.queue, sum(h.jobs) as jobs from held h group by h.queue) q
  ),
  'workers', (
    select coalesce(json_agg(w), '[]')
    from (
      select
        w.name,
        w.release,
        w.slots,
        coalesce((select sum(h.jobs) from held h where h.worker = w.name), 0) as running,
        extract(epoch from :schema.clock() - w.heartbeat_at)::float8 as silent_s,
        extract(
          epoch from :schema.clock() - :schema.last_seen(w.heartbeat_at, w.stopped_at)
        )::float8 as quiet_s,
        extract(epoch from :schema.clock() - w.started_at)::float8 as up_s,
        :schema.last_seen(w.heartbeat_at, w.stopped_at) as heartbeat_at,
        w.stopped_at is not null as stopped,
        :schema.is_alive(w.heartbeat_at, w.stopped_at) as is_alive,
        :schema.liveness_of(w.heartbeat_at, w.stopped_at) as state,
        case when w.version <> 'sql' then w.succeeded end as succeeded,
        case when w.version <> 'sql' then w.failed end as failed,
        case when w.version <> 'sql' then w.dead end as dead
      from :schema.workers_seen(interval '5 minutes') w
      order by w.stopped_at is not null, w.started_at
      limit :listed::int
    ) w
  ),
  'finished_per_s', (
    select coalesce(sum(w.finished_per_s), 0)
    from :schema.workers_seen(interval '20 seconds') w
  ),
  'waits', :schema.waits_now(:listed::int, :counted::int),
  'batches', (
    select coalesce(json_agg(b), '[]')
    from (
      select
        o.id, o.total, o.succeeded, o.dead, o.cancelled,
        extract(epoch from :schema.clock() - o.made_at)::float8 as made_s
      from :schema.batches_open(:batches::int) o
    ) b
  ),
  'errors', (
    select coalesce(json_agg(e), '[]')
    from (
      select
        a.job,
        a.job_type,
        a.attempt,
        a.outcome,
        a.error_type,
        left(a.message, 300) as message,
        extract(epoch from :schema.clock() - a.finished_at)::float8 as ago_s
      from :schema.attempts_latest(:listed::int) a
    ) e
  ),
  'dead', (
    select d.jobs
    from :schema.dead_jobs(:counted::int) d
  )
)::text as facts
