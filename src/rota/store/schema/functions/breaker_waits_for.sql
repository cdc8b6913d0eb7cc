-- What waits_for says of a job that waits for a breaker.
create or replace function {schema}.breaker_waits_for(p_name text, p_key text)
returns text
language sql immutable parallel safe
return 'breaker ' || p_name || case when p_key <> '' then ' ' || p_key else '' end;
