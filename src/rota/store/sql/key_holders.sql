-- Say which job holds each key, and how that job stands. A statement of its own: one that waited for the holder would not see it.
-- Parameters: job_types text[]; keys text[]
-- Rows: place int8; id int8; status text. Place counts from 1; a key that nobody holds is missing.
-- Locks: none; index idempotency_pkey.
-- Keeps: M51, the caller of the second gets the first one's id and status.
select place, id, status from rota.key_holders(:job_types::text[], :keys::text[])
