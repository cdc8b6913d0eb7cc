-- Insert up to 1,000 jobs that differ in their payloads only, and have no idempotency key.
-- Parameters: payloads text (a JSON array of objects); count int (how many); queue text;
--   job_type text; payload_version int; priority int; run_at timestamptz (NULL: now);
--   delay_s float8 (seconds from now); expires_s float8 (seconds from run_at); max_attempts int;
--   meta text (JSON)
-- Rows: id int8. The ids ascend in the order of the payloads; the rows may come in any order.
-- Locks: none.
-- Keeps: M20, M22 as job_insert.
insert into :schema.job (
  id,
  queue, job_type, payload, payload_version, priority,
  run_at, expires_at, max_attempts,
  meta
)
select
  given.id,
  :queue::text, :job_type::text, given.payload, :payload_version::int, :priority::int,
  due.run_at, due.run_at + :expires_s::float8 * interval '1 second', :max_attempts::int,
  :meta::text::jsonb
from (
  select greatest(
    :schema.clock(),
    coalesce(
      :run_at::timestamptz,
      :schema.clock() + coalesce(:delay_s::float8, 0) * interval '1 second'
    )
  ) as run_at
) due
cross join rows from (
  jsonb_array_elements(:payloads::text::jsonb),
  :schema.job_reserve(:count::int)
) given(payload, id)
returning id
