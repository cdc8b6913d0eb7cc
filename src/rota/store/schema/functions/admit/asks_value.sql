-- Returns p_name (limit, cost or breaker) from the row of a job, where p_from, an entry of its
-- type's asks_from, says. NULL: nothing, or the type has none.
create or replace function {schema}.asks_value(
  p_name text, p_from jsonb, p_meta jsonb, p_payload jsonb
)
returns jsonb
language sql immutable
return case
  when p_from is not null then coalesce(
    case
      when not coalesce((p_from -> 'is_plain')::boolean, false)
        then p_meta -> 'rota.asks' -> p_name
    end,
    p_payload -> (p_from ->> 'argument'),
    p_from -> 'default'
  )
end;
