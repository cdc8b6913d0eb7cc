-- Read the workers of the last hour: how many are alive, which are gone, and results that came too
-- late.
-- Parameters: limit int
-- Rows: facts text (JSON: alive [silent ones too], stopped, gone: name, silent_s; rejected: name,
--   rejected; refused of live ones: name, refused, refused_s; waiting_s of the oldest due job or
--   NULL)
-- Locks: none; index job_ready.
-- Keeps: M86, a person can see that no worker is alive; M32.
with recent as materialized (
  select
    w.*,
    :schema.liveness_of(w.heartbeat_at, w.stopped_at) as state,
    extract(epoch from :schema.clock() - w.heartbeat_at)::float8 as silent_s
  from :schema.workers_seen(interval '1 hour') w
)
select json_build_object(
  'alive', (select count(*) from recent r where r.state in ('alive', 'silent')),
  'stopped', (select count(*) from recent r where r.state = 'stopped'),
  'gone', (
    select coalesce(json_agg(s), '[]')
    from (
      select r.name, r.silent_s
      from recent r
      where r.state = 'gone'
      order by r.silent_s
      limit :limit::int
    ) s
  ),
  'rejected', (
    select coalesce(json_agg(r), '[]')
    from (
      select r.name, r.rejected
      from recent r
      where r.rejected > 0
      order by r.rejected desc
      limit :limit::int
    ) r
  ),
  'refused', (
    select coalesce(json_agg(f), '[]')
    from (
      select
        r.name,
        r.refused,
        extract(epoch from :schema.clock() - r.refused_since)::float8 as refused_s
      from recent r
      where r.refused is not null
        and r.state in ('alive', 'silent')
      order by r.refused_since
      limit :limit::int
    ) f
  ),
  'waiting_s', extract(epoch from :schema.clock() - :schema.oldest_due())::float8
)::text as facts
