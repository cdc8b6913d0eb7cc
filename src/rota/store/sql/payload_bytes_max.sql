-- Read the limit of a payload, in bytes of payload::text.
-- Parameters: none
-- Rows: payload_bytes_max int
-- Locks: none.
-- Keeps: M12, the client refuses what the CHECK would, before it can abort the caller's transaction.
select rota.payload_bytes_max() as payload_bytes_max
