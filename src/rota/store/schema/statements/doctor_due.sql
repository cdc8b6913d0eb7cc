-- Find jobs of types that are not declared or that no worker knows (still_known of due_facts), due
-- jobs of queues that no worker of the last hour serves, and how long the oldest due job has waited
-- that such a worker could run. It reads the first jobs of each queue and priority.
-- Parameters: heads int (how many jobs of each queue and priority); limit int
-- Rows: facts text (JSON: strange: job_type, jobs, waiting_s [negative: not due yet], is_declared,
--   is_known, is_served [a worker of the last hour serves a queue of these jobs]; unserved: queue,
--   waiting_s; claimable_s [NULL: there is no such job])
-- Locks: none; index job_ready.
-- Keeps: M85; no job of a mistyped type waits for ever unseen.
with waiting as materialized (
  select d.*, extract(epoch from :schema.clock() - d.oldest)::float8 as waiting_s
  from :schema.due_facts(
    'infinity'::timestamptz, interval '1 hour', :heads::int, null::text, true
  ) d
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
  'claimable_s', (
    select max(w.waiting_s)
    from waiting w
    where w.waiting_s >= 0
      and w.could
      and not w.paused
  )
)::text as facts
