-- Insert one job that is due now, and asks for no time, limit or meta of its own.
-- Parameters: queue text; job_type text; payload text (JSON object); payload_version int;
--   priority int; idempotency_key text
-- Rows: id int8. None when the idempotency key is taken.
-- Locks: with a key, the row of `idempotency` that it becomes; waits for an insert of the same key.
-- Keeps: M20, it joins the caller's transaction; M51, one job per (job type, key); M22.
insert into :schema.job (queue, job_type, payload, payload_version, priority, idempotency_key)
values (
  :queue::text, :job_type::text, :payload::text::jsonb, :payload_version::int, :priority::int,
  :idempotency_key::text
)
returning id
