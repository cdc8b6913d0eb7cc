-- Returns for each key what its reservations rest on now; NULL: there is no such limit.
-- Locks: none; indexes rate_limit_pkey and rate_limit_key_pkey.
create or replace function {schema}.limit_stamps(p_names text[], p_keys text[])
returns table (name text, key text, stamp text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select i.name, i.key, {schema}.limit_stamp(l, ({schema}.limit_state(i.name, i.key)).moves)
  from unnest(p_names, p_keys) i(name, key)
  left join {schema}.rate_limit l on l.name = i.name;
end $$;
