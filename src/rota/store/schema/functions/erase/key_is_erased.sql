-- Says whether a key was erased, and is still taken under one of these types.
-- Locks: none; index idempotency_pkey.
-- Keeps: M51, an erased key is as taken as it was.
create or replace function {schema}.key_is_erased(p_job_types text[], p_key text)
returns boolean
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select exists (
    select from {schema}.idempotency i
    where i.job_type = any (p_job_types)
      and i.key = {schema}.key_hash(p_key)
      and i.expires_at > {schema}.clock()
  )
$$;
