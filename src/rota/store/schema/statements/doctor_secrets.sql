-- Count waiting jobs sealed under keys that no worker of the last hour has, or handed back by a
-- worker that could not open them or their endpoint's secret.
-- Parameters: limit int (jobs of such types that are read)
-- Rows: facts text (JSON: sealed [whether any type has secret arguments], read [jobs]; keyless:
--   key, jobs, job [the oldest of them], known [whether a worker has a key of this id])
-- Locks: none; index job_waits. It reads the waiting jobs only if a type has secret arguments.
-- Keeps: M45, M85.
with named as materialized (
  select n.name
  from :schema.job_type t
  cross join lateral unnest(t.name || t.aliases) n(name)
  where t.secret_fields is not null
),
waiting as materialized (
  select j.id, j.payload, j.waits_for
  from :schema.job j
  join named n on n.name = j.job_type
  where exists (select from named)
    and j.status in ('queued', 'waiting', 'failed')
  limit :limit::int
),
sealed as materialized (
  select
    s.key,
    count(distinct s.id) as jobs,
    min(s.id) as job,
    bool_or(s.missed) as missed
  from (
    select
      v.value ->> 'key' as key,
      w.id,
      coalesce(w.waits_for = 'key ' || (v.value ->> 'key'), false) as missed
    from waiting w
    cross join lateral pg_catalog.jsonb_path_query(
      w.payload, 'strict $.** ? (@.sealed.type() == "string")'::jsonpath
    ) v(value)
    where :schema.is_sealed(v.value)
    union all
    (
      select pg_catalog.substr(j.waits_for, 5), j.id, true
      from :schema.job j
      where j.waits_for like 'key %'
        and j.status in ('queued', 'waiting', 'failed')
      limit :limit::int
    )
  ) s
  group by 1
),
judged as materialized (
  select
    s.*,
    exists (
      select from :schema.workers_seen(interval '1 hour') w
      where s.key = any (w.secret_keys)
    ) as known
  from sealed s
)
select json_build_object(
  'sealed', exists (select from named),
  'read', (select count(*) from waiting),
  'keyless', (
    select coalesce(json_agg(j order by j.key), '[]')
    from judged j
    where j.missed
      or not j.known
  )
)::text as facts
