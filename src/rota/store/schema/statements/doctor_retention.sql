-- Read how long finished things are kept, what should be gone by now, and how much there is.
-- Parameters: margin interval (how long a day may stay after its time)
-- Rows: facts text (JSON: keep_s by what [NULL: for ever], days, bytes and last_day_bytes of
--   history, overdue and pending: names of partitions; detached: name and is_taken [whether the
--   archive has a table of this name] of days that are no partition any more; archive: name,
--   is_open [whether the owner of the schema may move a table there], days, bytes [NULL: there is
--   none])
-- Locks: none.
-- Keeps: M13.
with kept(what, parent) as (
  values
    ('history', (:'schema' || '.job_history')::regclass::oid),
    ('attempts', (:'schema' || '.attempt')::regclass::oid)
),
partition as materialized (
  select
    c.oid,
    c.relname::text as name,
    t.what,
    i.inhdetachpending as is_pending,
    to_date(right(c.relname::text, 8), 'YYYYMMDD') as day
  from kept t
  join pg_inherits i on i.inhparent = t.parent
  join pg_class c on c.oid = i.inhrelid
  where c.relname::text ~ '_[0-9]{8}$'
),
detached as materialized (
  select
    c.relname::text as name,
    exists (
      select from pg_class o
      join :schema.installation n on o.relnamespace = to_regnamespace(quote_ident(n.archive))::oid
      where o.relname = c.relname
    ) as is_taken
  from kept t
  join pg_class p on p.oid = t.parent
  join pg_class c
    on c.relnamespace = p.relnamespace
    and c.relkind = 'r'
    and c.relname::text ~ '_[0-9]{8}$'
    and left(c.relname::text, -9) = p.relname::text
  left join :schema.retention r on r.what = t.what
  where not exists (select from pg_inherits i where i.inhrelid = c.oid)
    and right(c.relname::text, 8) collate "C" < to_char(
      (:schema.clock() - coalesce(r.keep, interval '0') - :margin::interval) at time zone 'UTC'
        - interval '1 day',
      'YYYYMMDD'
    )
),
today as (
  select (:schema.clock() at time zone 'UTC')::date as day
)
select json_build_object(
  'keep_s', (
    select json_object_agg(r.what, extract(epoch from r.keep)::float8)
    from :schema.retention r
  ),
  'days', (
    select count(*)
    from partition p, today t
    where p.what = 'history'
      and p.day <= t.day
  ),
  'bytes', (
    select coalesce(sum(pg_total_relation_size(p.oid::regclass)), 0)
    from partition p
    where p.what = 'history'
  ),
  'last_day_bytes', (
    select coalesce(sum(pg_total_relation_size(p.oid::regclass)), 0)
    from partition p, today t
    where p.what = 'history'
      and p.day = t.day - 1
  ),
  'overdue', (
    select coalesce(json_agg(p.name order by p.name), '[]')
    from partition p
    join :schema.retention r on r.what = p.what
    where (p.day + 1)::timestamp at time zone 'UTC'
      < :schema.clock() - r.keep - :margin::interval
  ),
  'pending', (
    select coalesce(json_agg(p.name order by p.name), '[]')
    from partition p
    where p.is_pending
  ),
  'detached', (
    select coalesce(json_agg(d order by d.name), '[]')
    from detached d
  ),
  'archive', (
    select json_build_object(
      'name', i.archive,
      'is_open', coalesce(
        has_schema_privilege(o.relowner, to_regnamespace(quote_ident(i.archive))::oid, 'CREATE'),
        false
      ),
      'days', count(c.oid),
      'bytes', coalesce(sum(pg_total_relation_size(c.oid::regclass)), 0)
    )
    from :schema.installation i
    join pg_class o on o.oid = (:'schema' || '.job_history')::regclass::oid
    left join pg_class c
      on c.relnamespace = to_regnamespace(quote_ident(i.archive))::oid
      and c.relkind = 'r'
      and c.relname::text ~ '^(job_history|attempt)_[0-9]{8}$'
    where i.archive is not null
    group by i.archive, o.relowner
  )
)::text as facts
