-- Returns the state of a key; all NULL if nothing is known. Read backwards, the newest version
-- comes first, before versions that an old snapshot still sees.
-- Locks: none; index rate_limit_key_pkey, backwards.
create or replace function {schema}.limit_state(p_name text, p_key text)
returns {schema}.rate_limit_key
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_state {schema}.rate_limit_key;
begin
  select k.* into v_state
  from {schema}.rate_limit_key k
  where k.name = p_name
    and k.key = p_key
  order by k.name desc, k.key desc, k.version desc
  limit 1;
  return v_state;
end $$;
