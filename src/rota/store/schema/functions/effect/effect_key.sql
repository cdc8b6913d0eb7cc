-- Returns the key under which an effect is kept: its hash, if it was erased.
-- Locks: none; index effect_pkey, and only if keys were ever erased.
-- Keeps: M52, an erased effect is not done again.
create or replace function {schema}.effect_key(p_key text, p_origin bigint)
returns text
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select coalesce(
    (
      select e.key
      from {schema}.effect e
      where (select n.keys_erased from {schema}.installation n)
        and e.key = {schema}.key_hash(p_key)
        and e.origin_id = p_origin
    ),
    p_key
  )
$$;
