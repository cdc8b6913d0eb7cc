-- Count keys of jobs that are gone without having ended, among the oldest keys of live jobs.
-- Parameters: limit int (keys to read)
-- Rows: facts text (JSON: orphans, example: job_type and key of the oldest [NULL: none], read)
-- Locks: none; indexes idempotency_live and job_pkey.
-- Keeps: M51, a key is held while its job is live, and not for ever.
with held as materialized (
  select i.job_type, i.key, i.job
  from :schema.idempotency i
  where i.expires_at is null
  order by i.job
  limit :limit::int
),
orphan as materialized (
  select h.*
  from held h
  where not exists (select from :schema.job j where j.id = h.job)
)
select json_build_object(
  'read', (select count(*) from held),
  'orphans', (select count(*) from orphan),
  'example', (
    select json_build_object('job_type', o.job_type, 'key', o.key)
    from orphan o
    order by o.job
    limit 1
  )
)::text as facts
