-- Returns the key of a limit or breaker as text; '': there is none, or the value cannot be a key.
create or replace function {schema}.asks_key(p_value jsonb)
returns text
language sql immutable
return case
  when jsonb_typeof(p_value) = 'string' and length(p_value #>> '{}') between 1 and 255
    or jsonb_typeof(p_value) = 'number' and p_value::text ~ '^-?\d{1,100}$'
    then p_value #>> '{}'
  else ''
end;
