-- Read the dead rows of the tables that change often, and the state of autovacuum.
-- Parameters: none
-- Rows: facts text (JSON: autovacuum, counts [whether the server counts rows], tables: name, live,
--   dead, vacuumed_s ago [NULL: never], is_off)
-- Locks: none.
-- Keeps: M14.
select json_build_object(
  'autovacuum', current_setting('autovacuum')::bool,
  'counts', current_setting('track_counts')::bool,
  'tables', (
    select json_agg(
      json_build_object(
        'name', c.relname,
        'live', s.n_live_tup,
        'dead', s.n_dead_tup,
        'vacuumed_s',
          extract(epoch from now() - greatest(s.last_autovacuum, s.last_vacuum))::float8,
        'is_off', exists (
          select from pg_options_to_table(c.reloptions) o
          where o.option_name = 'autovacuum_enabled'
            and not o.option_value::bool
        )
      )
      order by c.oid
    )
    from pg_class c
    left join pg_stat_all_tables s on s.relid = c.oid
    where c.oid in (
      (:'schema' || '.job')::regclass::oid,
      (:'schema' || '.idempotency')::regclass::oid,
      (:'schema' || '.queue')::regclass::oid,
      (:'schema' || '.worker')::regclass::oid
    )
  )
)::text as facts
