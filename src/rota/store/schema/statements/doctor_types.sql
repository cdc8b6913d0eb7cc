-- Find types of waiting jobs that no worker of the last hour knows, one that was killed included,
-- or that are not declared. Only the first jobs of each queue and priority are read.
-- Parameters: heads int (how many jobs of each queue and priority); limit int
-- Rows: facts text (JSON: strange: job_type, jobs, waiting_s [negative: not due yet], is_declared,
--   is_known, is_served [a worker of the last hour serves a queue of these jobs]; declared: every
--   name, former ones too; types: name, queue, priority, group_key [whether it declares one],
--   on_retry, on_dead, concurrency, breaker)
-- Locks: none; index job_ready.
-- Keeps: M85; without this, a job of a mistyped type would wait for ever unseen.
with recent as materialized (
  select w.job_types, w.queues
  from :schema.workers_seen(interval '1 hour') w
),
known as materialized (
  select distinct t.name
  from recent r
  cross join lateral unnest(r.job_types) t(name)
),
declared as materialized (
  select t.name
  from :schema.job_type t
  union
  select a.name
  from :schema.job_type t
  cross join lateral unnest(t.aliases) a(name)
),
waiting as materialized (
  select
    h.job_type,
    count(*) as jobs,
    extract(epoch from :schema.clock() - min(h.run_at))::float8 as waiting_s,
    array_agg(distinct h.queue) as queues
  from :schema.ready_heads(:heads::int) h
  group by h.job_type
)
select json_build_object(
  'strange', (
    select coalesce(json_agg(s), '[]')
    from (
      select
        w.job_type,
        w.jobs,
        w.waiting_s,
        w.job_type in (select d.name from declared d) as is_declared,
        w.job_type in (select k.name from known k) as is_known,
        exists (select from recent r where r.queues ?| w.queues) as is_served
      from waiting w
      where w.job_type not in (select d.name from declared d)
        or w.job_type not in (select k.name from known k)
      order by w.waiting_s desc
      limit :limit::int
    ) s
  ),
  'declared', (select coalesce(json_agg(d.name order by d.name), '[]') from declared d),
  'types', (
    select coalesce(
      json_agg(
        json_build_object(
          'name', t.name,
          'queue', t.queue,
          'priority', t.priority,
          'group_key', t.group_arguments is not null,
          'on_retry', t.on_retry,
          'on_dead', t.on_dead,
          'concurrency', t.concurrency,
          'breaker', t.breaker
        )
        order by t.name
      ),
      '[]'
    )
    from :schema.job_type t
  )
)::text as facts
