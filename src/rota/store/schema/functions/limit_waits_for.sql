-- Returns what a job waits for that this key of a limit has handed back.
create or replace function {schema}.limit_waits_for(p_name text, p_key text)
returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select 'limit ' || p_name || case when p_key <> '' then ' ' || p_key else '' end
$$;
