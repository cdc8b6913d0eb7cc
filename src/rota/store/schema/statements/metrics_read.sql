-- Read the gauges of the database.
-- Parameters: names int (most queues, breakers and tables); counted int (most jobs to count of each
--   kind)
-- Rows: metric text; about text (the value of the label; NULL: the gauge has none); value float8
-- Locks: none; indexes job_ready, job_lease, job_dead, job_waits and job_put_off. It reads breaker
--   and job_type whole, and the file system for sizes of tables.
-- Keeps: M85, with a bound on the rows read.
with queues as materialized (
  select
    c.queue,
    sum(c.due)::float8 as due,
    greatest(0, extract(epoch from :schema.clock() - min(c.oldest_at)))::float8 as oldest_s
  from :schema.ready_counts(:names::int, :counted::int) c
  group by c.queue
),
waiting as materialized (
  select j.waits_for is not null and j.waits_for like 'job %' as is_awaiting
  from :schema.job j
  where j.status = 'waiting'
    and (j.waits_for is null or j.waits_for like 'job %')
  limit :counted::int
),
breakers as (
  select t.breaker as name, false as is_open
  from :schema.job_type t
  where t.breaker is not null
  union all
  select b.name, b.state <> 'closed'
  from :schema.breaker b
),
relations as materialized (
  select
    coalesce(p.relname, c.relname)::text as name,
    pg_total_relation_size(c.oid::regclass) as bytes,
    greatest(s.n_live_tup, c.reltuples::int8, 0) as live,
    coalesce(s.n_dead_tup, 0) as dead
  from pg_class c
  left join pg_inherits i on i.inhrelid = c.oid
  left join pg_class p on p.oid = i.inhparent
  left join pg_stat_all_tables s on s.relid = c.oid
  where c.relkind = 'r'
    and c.relnamespace = (:'schema')::regnamespace::oid
),
tables as materialized (
  select r.name, sum(r.live) as live, sum(r.dead) as dead, sum(r.bytes) as bytes
  from relations r
  group by r.name
  order by bytes desc, r.name
  limit :names::int
),
holders as materialized (
  select 'session' as kind, greatest(age(a.backend_xmin), age(a.backend_xid)) as xids,
    extract(epoch from clock_timestamp() - a.xact_start)::float8 as held_s
  from pg_stat_activity a
  where a.pid <> pg_backend_pid()
    and a.datname = current_database()
    and coalesce(a.backend_type, '') <> 'autovacuum worker'
  union all
  select 'prepared_transaction', age(p.transaction),
    extract(epoch from clock_timestamp() - p.prepared)::float8
  from pg_prepared_xacts p
  where p.database = current_database()
  union all
  select 'replication_slot', age(s.xmin), null
  from pg_replication_slots s
  union all
  select 'standby', age(r.backend_xmin), null
  from pg_stat_replication r
),
horizon as materialized (
  select k.kind, coalesce(max(h.xids), 0)::float8 as xids, coalesce(max(h.held_s), 0) as held_s
  from (
    values ('session'), ('prepared_transaction'), ('replication_slot'), ('standby')
  ) k(kind)
  left join holders h on h.kind = k.kind and h.xids is not null
  group by k.kind
),
workers as materialized (
  select :schema.liveness_of(w.heartbeat_at, w.stopped_at) as state, w.slots
  from :schema.workers_seen(interval '1 hour') w
)
select 'rota_due_jobs' as metric, q.queue as about, q.due as value
from queues q
union all
select 'rota_oldest_due_job_seconds', q.queue, q.oldest_s
from queues q
union all
select 'rota_running_jobs', r.queue, count(*)::float8
from :schema.running_jobs(:counted::int) r
group by r.queue
union all
select 'rota_dead_jobs', null, d.jobs::float8
from :schema.dead_jobs(:counted::int) d
union all
select 'rota_blocked_jobs', k.reason, coalesce(sum(w.jobs), 0)::float8
from (
  values
    ('concurrency_limit', 'type'), ('concurrency_limit', 'queue'), ('rate_limit', 'limit'),
    ('breaker', 'breaker')
) k(reason, kind)
left join lateral :schema.waits(k.kind, :names::int, :counted::int) w on true
group by k.reason
union all
select 'rota_blocked_jobs', k.reason, count(w.is_awaiting)::float8
from (values ('ordered_group', false), ('awaited_job', true)) k(reason, awaits)
left join waiting w on w.is_awaiting = k.awaits
group by k.reason
union all
select 'rota_blocked_jobs', 'pause', coalesce(sum(q.due), 0)
from queues q
where q.queue = any (:schema.paused_queues(array(select p.queue from queues p)))
union all
select 'rota_overdue_schedules', null, count(*)::float8
from :schema.schedules_overdue(interval '5 minutes', :counted::int)
union all
select *
from (
  select 'rota_open_breakers', b.name, count(*) filter (where b.is_open)::float8
  from breakers b
  group by b.name
  order by 3 desc, 2
  limit :names::int
) b
union all
select 'rota_workers', k.state, count(w.state)::float8
from (values ('alive'), ('silent'), ('gone')) k(state)
left join workers w on w.state = k.state
group by k.state
union all
select 'rota_worker_slots', null, coalesce(sum(w.slots), 0)::float8
from workers w
where w.state in ('alive', 'silent')
union all
select m.metric, t.name, m.value::float8
from tables t
cross join lateral (
  values
    ('rota_table_rows', t.live), ('rota_table_dead_rows', t.dead), ('rota_table_bytes', t.bytes)
) m(metric, value)
union all
select 'rota_vacuum_horizon_transactions', h.kind, h.xids
from horizon h
union all
select 'rota_vacuum_horizon_seconds', h.kind, h.held_s
from horizon h
where h.kind in ('session', 'prepared_transaction')
