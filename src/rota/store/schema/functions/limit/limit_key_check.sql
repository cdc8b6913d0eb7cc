-- Returns the key as the table has it. Raises if it is missing, not declared or too long.
create or replace function {schema}.limit_key_check(p_limit {schema}.rate_limit, p_key text)
returns text
language plpgsql
as $$
declare
  v_wrong text := case
    when length(p_key) not between 1 and 255
      then 'a key has 1 to 255 characters'
    when p_key is null and (p_limit.declared ->> 'keyed')::boolean
      then format('rate limit %L is kept for each key: say for which', p_limit.name)
    when p_key is not null and not (p_limit.declared ->> 'keyed')::boolean
      then format('rate limit %L has no keys', p_limit.name)
  end;
begin
  if v_wrong is not null then
    raise invalid_parameter_value using message = v_wrong;
  end if;
  return coalesce(p_key, '');
end $$;
