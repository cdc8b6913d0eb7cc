-- Read the signs that a team is outgrowing one table of one database.
-- Parameters: prefix text (with which the application_name of each of Rota's own connections
--   begins); limit int (most running jobs, jobs of a lane and keys of a limit to read); names int
--   (most lanes and limits); deltas int (most changes of batches to count)
-- Rows: facts text (JSON: live jobs as the server estimates them, bytes of the live table,
--   inserted, updated, deadlocks since the statistics began, sessions: Rota's own, waiting: how
--   many of these wait for a lock; workers alive, teams: their sets of job types; single: queue,
--   waiting_s of queues that have one slot in all and are not paused; reporting: running jobs that
--   report progress; uncounted: changes of batches that are not counted yet;
--   lanes: group_key, jobs [due and without a place], waiting_s [of the next] of lanes of which a
--   job runs, the latest first; limits: name, rate [starts a second] of limits used within the
--   hour, the fastest first; history_bytes)
-- Locks: none; indexes job_ready, job_lease, job_lane, rate_limit_pkey and rate_limit_key_pkey.
-- Keeps: M3, the docs say when a team outgrows Rota.
with alive as materialized (
  select w.job_types, w.queues
  from :schema.worker w
  where :schema.is_alive(w.heartbeat_at, w.stopped_at)
),
ours as materialized (
  select a.wait_event_type
  from pg_stat_activity a
  where left(a.application_name, length(:prefix::text)) = :prefix::text
    and a.datname = current_database()
)
select json_build_object(
  'live', greatest(s.n_live_tup, c.reltuples::int8),
  'bytes', pg_total_relation_size(c.oid::regclass),
  'inserted', s.n_tup_ins,
  'updated', s.n_tup_upd,
  'deadlocks', (
    select d.deadlocks
    from pg_stat_database d
    where d.datname = current_database()
  ),
  'sessions', (select count(*) from ours),
  'waiting', (select count(*) from ours o where o.wait_event_type = 'Lock'),
  'workers', (select count(*) from alive),
  'teams', (select coalesce(json_agg(distinct a.job_types), '[]') from alive a),
  'single', (
    select coalesce(json_agg(single), '[]')
    from (
      select
        h.queue,
        extract(epoch from :schema.clock() - min(h.run_at))::float8 as waiting_s
      from :schema.ready_heads(1) h
      where h.run_at <= :schema.clock()
        and h.queue <> all (:schema.paused_queues(array[h.queue]))
        and (
          select sum((a.queues ->> h.queue)::int)
          from alive a
          where a.queues ? h.queue
          having bool_and(a.queues ->> h.queue is not null)
        ) = 1
      group by h.queue
    ) single
  ),
  'reporting', (
    select count(*)
    from :schema.running_jobs(:limit::int) r
    where r.progress is not null
  ),
  'uncounted', (
    select count(*)
    from (
      select
      from :schema.batch_delta d
      limit :deltas::int
    ) d
  ),
  'lanes', (
    select coalesce(json_agg(lane order by lane.waiting_s desc), '[]')
    from (
      select late.group_key, late.waiting_s, behind.jobs
      from (
        select l.group_key, extract(epoch from :schema.clock() - next.run_at)::float8 as waiting_s
        from (
          select distinct r.group_key
          from (
            select j.group_key, j.in_lane
            from :schema.job j
            where j.status = 'running'
            order by j.locked_until
            limit :limit::int
          ) r
          where r.in_lane
        ) l
        cross join lateral (
          select j.run_at
          from :schema.job j
          where j.group_key = l.group_key
            and j.in_lane is null
            and j.status in ('queued', 'failed', 'waiting')
          order by j.priority desc, j.run_at, j.id
          limit 1
        ) next
        where next.run_at < :schema.clock()
        order by next.run_at
        limit :names::int
      ) late
      cross join lateral (
        select count(*) as jobs
        from (
          select j.run_at
          from :schema.job j
          where j.group_key = late.group_key
            and j.in_lane is null
            and j.status in ('queued', 'failed', 'waiting')
          order by j.priority desc, j.run_at, j.id
          limit :limit::int
        ) n
        where n.run_at <= :schema.clock()
      ) behind
    ) lane
  ),
  'limits', (
    select coalesce(json_agg(fast order by fast.rate desc), '[]')
    from (
      select l.name, (l.starts / extract(epoch from l.per))::float8 as rate
      from :schema.rate_limit l
      where exists (
        select
        from (
          select k.updated_at
          from :schema.rate_limit_key k
          where k.name = l.name
          order by k.key
          limit :limit::int
        ) k
        where k.updated_at > :schema.clock() - interval '1 hour'
      )
      order by rate desc, l.name
      limit :names::int
    ) fast
  ),
  'history_bytes', (
    select coalesce(sum(pg_total_relation_size(i.inhrelid::regclass)), 0)
    from pg_inherits i
    where i.inhparent = (:'schema' || '.job_history')::regclass::oid
  )
)::text as facts
from pg_class c
left join pg_stat_all_tables s on s.relid = c.oid
where c.oid = (:'schema' || '.job')::regclass::oid
