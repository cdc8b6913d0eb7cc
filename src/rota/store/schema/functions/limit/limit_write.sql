-- Writes a key's state in place of the version that was read. The caller has locked its stripe.
-- Locks: the row of the version before; index rate_limit_key_pkey.
-- Keeps: M62, and that a read costs the same under an old snapshot.
create or replace function {schema}.limit_write(p_state {schema}.rate_limit_key)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  insert into {schema}.rate_limit_key (
    name, key, version, tat, spacing, held_to, estimated_to, again_to, urgent_to
  )
  values (
    p_state.name, p_state.key, coalesce(p_state.version, 0) + 1, p_state.tat, p_state.spacing,
    p_state.held_to, p_state.estimated_to, p_state.again_to, p_state.urgent_to
  );
  delete from {schema}.rate_limit_key k
  where k.name = p_state.name
    and k.key = p_state.key
    and k.version = p_state.version;
end $$;
