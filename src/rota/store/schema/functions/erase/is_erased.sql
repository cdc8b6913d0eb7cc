-- Says whether a payload is what an erasure has left.
create or replace function {schema}.is_erased(p_payload jsonb)
returns boolean
language sql immutable parallel safe
as $$
  select p_payload ? 'rota.erased'
$$;
