-- Deletes keys that have expired. Returns how many.
-- Locks: the rows of the keys, with SKIP LOCKED; index idempotency_expires.
-- Keeps: M51, a key is held until it expires, and not for ever.
create or replace function {schema}.keys_expire(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with old as materialized (
    select i.job_type, i.key
    from {schema}.idempotency i
    where i.expires_at < {schema}.clock()
    order by i.expires_at
    limit p_limit
    for update skip locked
  )
  delete from {schema}.idempotency i
  using old o
  where i.job_type = o.job_type
    and i.key = o.key;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
