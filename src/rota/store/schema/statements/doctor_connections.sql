-- Count connections: all of them, and Rota's own by their application_name.
-- Parameters: prefix text (with which the application_name of each of Rota's own begins)
-- Rows: facts text (JSON: used, ours, most [for ordinary roles], workers alive)
-- Locks: none.
-- Keeps: M3.
select json_build_object(
  'used', count(*),
  'ours', count(*) filter (
    where left(a.application_name, length(:prefix::text)) = :prefix::text
      and a.datname = current_database()
  ),
  'most', current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0),
  'workers', (
    select count(*)
    from :schema.worker w
    where :schema.is_alive(w.heartbeat_at, w.stopped_at)
  )
)::text as facts
from pg_stat_activity a
where a.usename is not null
