-- Insert one job.
-- Parameters: queue text; job_type text; payload text (JSON object); payload_version int;
--   priority int; run_at timestamptz (NULL: now); delay_s float8 (seconds from now);
--   expires_s float8 (seconds from run_at); max_attempts int; timeout interval;
--   idempotency_key text; meta text (JSON)
-- Rows: id int8. None when the idempotency key is taken.
-- Locks: with a key, the row of `idempotency` that it becomes; waits for an insert of the same key.
-- Keeps: M20, it joins the caller's transaction; M51, one job per (job type, key); M22.
insert into :schema.job (
  queue, job_type, payload, payload_version, priority,
  run_at, expires_at, max_attempts, timeout,
  idempotency_key, meta
)
select
  :queue::text, :job_type::text, :payload::text::jsonb, :payload_version::int, :priority::int,
  due.run_at, due.run_at + :expires_s::float8 * interval '1 second', :max_attempts::int,
  :timeout::interval,
  :idempotency_key::text, :meta::text::jsonb
from (
  select greatest(
    :schema.clock(),
    coalesce(
      :run_at::timestamptz,
      :schema.clock() + coalesce(:delay_s::float8, 0) * interval '1 second'
    )
  ) as run_at
) due
returning id
