-- Insert up to 1,000 jobs under ids that were reserved before.
-- Parameters: ids int8[]; queues text[]; job_types text[]; payloads text[] (JSON objects);
--   payload_versions int[]; priorities int[]; run_ats timestamptz[] (NULL: now); delays_s float8[]
--   (seconds from now); expires_s float8[] (seconds from run_at); max_attempts int[];
--   idempotency_keys text[]; metas text[] (JSON)
-- Rows: id int8. The ids of the rows that were inserted; those whose key is taken are missing.
-- Locks: with keys, the rows of `idempotency` that they become, in the order of (job type, key):
--   two bulks with the same keys cannot deadlock.
-- Keeps: M20, M51, M22 as job_insert.
insert into :schema.job (
  id,
  queue, job_type, payload, payload_version, priority,
  run_at, expires_at, max_attempts,
  idempotency_key, meta
)
select
  due.id,
  due.queue, due.job_type, due.payload::jsonb, due.payload_version, due.priority,
  due.run_at, due.run_at + due.expires_s * interval '1 second', due.max_attempts,
  due.idempotency_key, due.meta::jsonb
from (
  select
    d.*,
    greatest(
      :schema.clock(),
      coalesce(
        d.asked_run_at,
        :schema.clock() + coalesce(d.delay_s, 0) * interval '1 second'
      )
    ) as run_at
  from unnest(
    :ids::int8[],
    :queues::text[], :job_types::text[],
    :payloads::text[], :payload_versions::int[], :priorities::int[],
    :run_ats::timestamptz[], :delays_s::float8[], :expires_s::float8[], :max_attempts::int[],
    :idempotency_keys::text[], :metas::text[]
  ) d(
    id,
    queue, job_type,
    payload, payload_version, priority,
    asked_run_at, delay_s, expires_s, max_attempts,
    idempotency_key, meta
  )
) due
order by
  case when due.idempotency_key is not null then due.job_type end collate "C" nulls last,
  due.idempotency_key collate "C",
  due.id
returning id
