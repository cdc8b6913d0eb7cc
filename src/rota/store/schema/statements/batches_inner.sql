-- List the batches of which a batch is the parent, the oldest first.
-- Parameters: parent int8; limit int
-- Rows: id int8; parent int8; total int4; succeeded int4; dead int4; cancelled int4;
--   on_failure text; outcome text; created_at timestamptz; ended_at timestamptz;
--   then_at timestamptz; then_job int8; then_error text
-- Locks: none; indexes batch_parent, batch_pkey and batch_delta_batch.
-- Keeps: M72, progress that a UI can show.
select
  b.id, b.parent, b.total, b.succeeded, b.dead, b.cancelled, b.on_failure, b.outcome,
  b.created_at, b.ended_at, b.then_at, b.then_job, b.then_error
from (
  select i.id
  from :schema.batch i
  where i.parent = :parent::int8
  order by i.id
  limit :limit::int
) i
join :schema.batches b on b.id = i.id
order by b.id
