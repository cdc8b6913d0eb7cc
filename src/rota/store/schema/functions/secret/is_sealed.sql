-- Returns whether a JSON value is sealed: an object with `sealed` and `key`, the id of the key, and
-- nothing else. Python's `is_sealed` says the same.
create or replace function {schema}.is_sealed(p_value jsonb)
returns boolean
language sql immutable parallel safe
as $$
  select case
    when jsonb_typeof(p_value) = 'object'
      then p_value - '{sealed,key}'::text[] = '{}'
        and coalesce(jsonb_typeof(p_value -> 'key') = 'string', false)
        and p_value ->> 'key' ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,49}$'
        and coalesce(jsonb_typeof(p_value -> 'sealed') = 'string', false)
        and p_value ->> 'sealed' ~ '^[A-Za-z0-9+/]{38,}={0,2}$'
    else false
  end
$$;
