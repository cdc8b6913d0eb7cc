-- List batches, the newest first.
-- Parameters: id int8 (NULL: all); before int8 (only ids below; NULL: from the newest); limit int
-- Rows: id int8; parent int8; total int4; succeeded int4; dead int4; cancelled int4;
--   on_failure text; outcome text; created_at timestamptz; ended_at timestamptz;
--   then_at timestamptz; then_job int8; then_error text
-- Locks: none; indexes batch_pkey and batch_delta_batch.
-- Keeps: M72, progress that a UI can show.
select
  b.id, b.parent, b.total, b.succeeded, b.dead, b.cancelled, b.on_failure, b.outcome,
  b.created_at, b.ended_at, b.then_at, b.then_job, b.then_error
from :schema.batches b
where (:id::int8 is null or b.id = :id::int8)
  and (:before::int8 is null or b.id < :before::int8)
order by b.id desc
limit :limit::int
