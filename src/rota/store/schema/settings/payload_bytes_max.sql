-- Returns the most bytes that payload::text may have; `rota migrate --payload-bytes-max` replaces
-- it. STABLE, not IMMUTABLE: an open session would keep the old limit in its plans.
-- Locks: none.
-- Keeps: M12, the client refuses what the trigger would refuse.
create function {schema}.payload_bytes_max()
returns int
language sql stable parallel safe
as 'select 65536';
