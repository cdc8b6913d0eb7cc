-- Returns the first of these names that has no text and no number in p_meta's rota.asks; NULL: all.
create or replace function {schema}.asks_lacking(p_names text[], p_meta jsonb)
returns text
language sql immutable parallel safe
as $$
  select n.name
  from unnest(p_names) n(name)
  where coalesce(jsonb_typeof(p_meta -> 'rota.asks' -> n.name), '') not in ('string', 'number')
  limit 1
$$;
