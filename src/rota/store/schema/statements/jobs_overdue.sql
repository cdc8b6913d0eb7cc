-- Find the waiting jobs that are past their expiry, when one statement cannot end them all.
-- Parameters: after timestamptz; after_id int8 (read the index of expiries behind this key);
--   limit int
-- Rows: id int8
-- Locks: none; index job_expires.
-- Keeps: M36, one job that cannot be ended does not hold back the others.
select j.id
from :schema.job j
where j.expires_at is not null
  and j.status in ('queued', 'failed', 'waiting')
  and (j.expires_at, j.id) > (:after::timestamptz, :after_id::int8)
  and j.expires_at <= :schema.clock()
order by j.expires_at, j.id
limit :limit::int
