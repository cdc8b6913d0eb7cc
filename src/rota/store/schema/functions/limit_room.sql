-- Returns what waits_for says of a job that waits for this key of a limit.
create or replace function {schema}.limit_room(p_name text, p_key text)
returns text
language sql immutable parallel safe
return 'limit ' || p_name || case when p_key <> '' then ' ' || p_key else '' end;
