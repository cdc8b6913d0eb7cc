-- Find jobs that run longer than their timeout, and expired leases that no worker has taken.
-- Parameters: margin interval; limit int (most running jobs to read)
-- Rows: facts text (JSON: running, long: id, job_type, worker, running_s, timeout_s; expired: id,
--   job_type, worker, expired_s)
-- Locks: none; index job_lease.
-- Keeps: M35; M33.
with looked as materialized (
  select
    r.*,
    extract(epoch from :schema.clock() - r.locked_until)::float8 as expired_s,
    extract(epoch from :schema.clock() - r.started_at)::float8 as running_s
  from :schema.running_jobs(:limit::int) r
),
types as materialized (
  select d.job_type, coalesce(t.timeout, interval '5 minutes') as timeout
  from (select distinct l.job_type from looked l) d
  left join :schema.job_type t on t.name = :schema.canonical_type(d.job_type)
)
select json_build_object(
  'running', (select count(*) from looked),
  'long', (
    select coalesce(json_agg(o), '[]')
    from (
      select l.id, l.job_type, l.worker, l.running_s, m.timeout_s
      from looked l
      join types t on t.job_type = l.job_type
      cross join lateral (
        select extract(epoch from coalesce(l.timeout, t.timeout))::float8 as timeout_s
      ) m
      where l.running_s > m.timeout_s + extract(epoch from :margin::interval)
      order by l.started_at
      limit 5
    ) o
  ),
  'expired', (
    select coalesce(json_agg(e), '[]')
    from (
      select l.id, l.job_type, l.worker, l.expired_s
      from looked l
      where l.locked_until < :schema.clock() - :margin::interval
      order by l.expired_s desc
      limit 5
    ) e
  )
)::text as facts
