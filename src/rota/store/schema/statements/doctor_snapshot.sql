-- Find what keeps vacuum from removing old rows, the oldest first: open transactions of this
-- database, prepared transactions, replication slots and standbys.
-- Parameters: limit int
-- Rows: facts text (JSON: holders: kind, who, user, application, state, xids [its age in
--   transactions], held_s [NULL: unknown], is_hidden)
-- Locks: none.
-- Keeps: M14; one forgotten psql keeps every dead row of every table.
select json_build_object(
  'holders', coalesce(json_agg(h order by h.xids desc, h.held_s desc nulls last), '[]')
)::text as facts
from (
  select *
  from (
    select
      'session' as kind,
      a.pid::text as who,
      a.usename::text as "user",
      a.application_name as application,
      a.state,
      greatest(age(a.backend_xmin), age(a.backend_xid)) as xids,
      extract(epoch from clock_timestamp() - a.xact_start)::float8 as held_s,
      a.query = '<insufficient privilege>' as is_hidden
    from pg_stat_activity a
    where (a.backend_xmin is not null or a.backend_xid is not null)
      and a.pid <> pg_backend_pid()
      and a.datname = current_database()
      and coalesce(a.backend_type, '') <> 'autovacuum worker'
    union all
    select
      'prepared transaction',
      p.gid,
      p.owner::text,
      null,
      null,
      age(p.transaction),
      extract(epoch from clock_timestamp() - p.prepared)::float8,
      false
    from pg_prepared_xacts p
    where p.database = current_database()
    union all
    select
      'replication slot',
      s.slot_name::text,
      null,
      s.plugin::text,
      case when s.active then 'active' else 'inactive' end,
      age(s.xmin),
      null,
      false
    from pg_replication_slots s
    where s.xmin is not null
    union all
    select
      'standby',
      r.pid::text,
      r.usename::text,
      r.application_name,
      r.state,
      age(r.backend_xmin),
      null,
      false
    from pg_stat_replication r
    where r.backend_xmin is not null
  ) every
  order by every.xids desc, every.held_s desc nulls last
  limit :limit::int
) h
