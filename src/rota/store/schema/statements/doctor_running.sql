-- Find jobs that run longer than their timeout, and expired leases that no worker has taken.
-- Parameters: margin interval; limit int (most running jobs to read)
-- Rows: facts text (JSON: running, long: id, job_type, worker, running_s, timeout_s; expired: id,
--   job_type, worker, expired_s)
-- Locks: none; index job_lease.
-- Keeps: M35; M33.
with looked as materialized (
  select
    r.*,
    extract(epoch from :schema.clock() - r.locked_until)::float8 as expired_s
  from :schema.running_jobs(:limit::int) r
)
select json_build_object(
  'running', (select count(*) from looked),
  'long', (
    select coalesce(json_agg(o), '[]')
    from (
      select l.id, l.job_type, l.worker, l.running_s, l.timeout_s
      from :schema.jobs_over_time(:margin::interval, :limit::int, 5) l
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
