-- Returns the number of the lock that guards a key of a limit: one of 256.
create or replace function {schema}.limit_stripe(p_name text, p_key text)
returns int
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select hashtext(p_name || ' ' || p_key) & 255
$$;
