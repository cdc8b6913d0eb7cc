-- Returns the waits_for of a job that waits for a key of a limit or a breaker.
create or replace function {schema}.room_name(p_kind text, p_name text, p_key text)
returns text
language sql immutable parallel safe
return p_kind || ' ' || p_name || case when p_key <> '' then ' ' || p_key else '' end;
