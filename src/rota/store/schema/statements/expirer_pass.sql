-- End waiting jobs past their expiry.
-- Parameters: worker text (which finds them); after timestamptz; after_id int8 (read the index of
--   expiries behind this key); limit int; only int8[] (only these jobs; NULL: all)
-- Rows: started timestamptz; id int8; job_type text; claims int4; attempt int4;
--   expires_at timestamptz; message text; status text (dead or cancelled). One row with a NULL id
--   when nothing had expired.
-- Locks: the expired rows, with SKIP LOCKED; index job_expires.
-- Keeps: M36: past its expiry a job has ended and says what delayed it.
select
  :schema.clock() as started,
  e.id, e.job_type, e.claims, e.attempt, e.expires_at, e.message, e.status
from (select) always
left join :schema.job_expire(
  :worker::text,
  :after::timestamptz,
  :after_id::int8,
  :limit::int,
  :only::int8[]
) e on true
