-- Find jobs of types that are not declared or that no worker knows (still_known of due_facts), due
-- jobs of queues that no worker of the last hour serves, or none that is alive, and how long the
-- oldest due job has waited that such a worker could run.
-- It reads the first jobs of each queue and priority.
-- Parameters: heads int (how many jobs of each queue and priority); limit int
-- Rows: facts text (JSON: strange: job_type, jobs, waiting_s [negative: not due yet], is_declared,
--   is_known, is_served [a worker of the last hour serves a queue of these jobs]; unserved: queue,
--   waiting_s; left [its workers of the last hour are no longer alive]: queue, waiting_s, state
--   and quiet_s of the last of these; claimable_s [NULL: there is no such job])
-- Locks: none; index job_ready.
-- Keeps: M85; no job of a mistyped type waits for ever unseen.
with waiting as materialized (
  select d.*, extract(epoch from :schema.clock() - d.oldest)::float8 as waiting_s
  from :schema.due_facts(
    'infinity'::timestamptz, interval '1 hour', :heads::int, null::text, true
  ) d
),
serving as materialized (
  select
    s.queues,
    :schema.liveness_of(s.heartbeat_at, s.stopped_at) as state,
    :schema.last_seen(s.heartbeat_at, s.stopped_at) as seen_at
  from :schema.workers_seen(interval '1 hour') s
)
select json_build_object(
  'strange', (
    select coalesce(json_agg(s), '[]')
    from (
      select
        w.job_type,
        sum(w.jobs)::bigint as jobs,
        max(w.waiting_s) as waiting_s,
        bool_and(w.declared) as is_declared,
        bool_and(w.still_known) as is_known,
        bool_or(w.served) as is_served
      from waiting w
      where not (w.declared and w.still_known)
      group by w.job_type
      order by 3 desc, w.job_type
      limit :limit::int
    ) s
  ),
  'unserved', (
    select coalesce(json_agg(u), '[]')
    from (
      select w.queue, max(w.waiting_s) as waiting_s
      from waiting w
      where w.waiting_s >= 0
        and not w.served
      group by w.queue
      order by 2 desc, w.queue
      limit :limit::int
    ) u
  ),
  'left', (
    select coalesce(json_agg(l), '[]')
    from (
      select
        w.queue,
        max(w.waiting_s) as waiting_s,
        (array_agg(s.state order by s.seen_at desc))[1] as state,
        extract(epoch from :schema.clock() - max(s.seen_at))::float8 as quiet_s
      from waiting w
      join serving s on s.queues ? w.queue
      where w.waiting_s >= 0
        and not w.paused
      group by w.queue
      having not bool_or(s.state in ('alive', 'silent'))
      order by 2 desc, w.queue
      limit :limit::int
    ) l
  ),
  'claimable_s', (
    select max(w.waiting_s)
    from waiting w
    where w.waiting_s >= 0
      and w.could
      and not w.paused
  )
)::text as facts
