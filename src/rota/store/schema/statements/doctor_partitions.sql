-- Find the days, from today on, that have no partition of history or of attempts.
-- Parameters: days int (ahead of today)
-- Rows: facts text (JSON: by table the missing days, as how many after today)
-- Locks: none.
-- Keeps: M13; a finish always finds its partition.
select json_object_agg(
  t.name,
  (
    select coalesce(json_agg(d.ahead order by d.ahead), '[]')
    from generate_series(0, :days::int) d(ahead)
    where not exists (
      select from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = t.parent
        and not i.inhdetachpending
        and c.relname = t.name || '_'
          || to_char(((:schema.clock() at time zone 'UTC')::date + d.ahead)::timestamp, 'YYYYMMDD')
    )
  )
)::text as facts
from (
  values
    ('job_history', (:'schema' || '.job_history')::regclass::oid),
    ('attempt', (:'schema' || '.attempt')::regclass::oid)
) t(name, parent)
