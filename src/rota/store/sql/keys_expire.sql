-- Forget idempotency keys whose time is over.
-- Parameters: limit int
-- Rows: count int4
-- Locks: the rows of the keys, with SKIP LOCKED; index idempotency_expires.
-- Keeps: M51, a key is held until its time is over, and not for ever.
select rota.keys_expire(:limit::int) as count
