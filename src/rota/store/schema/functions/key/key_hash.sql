-- Returns the SHA-256 that replaces an erased key; of an erased key, itself.
create or replace function {schema}.key_hash(p_key text)
returns text
language sql immutable strict parallel safe
as $$
  select case
    when p_key ~ '^erased:[0-9a-f]{64}$' then p_key
    else 'erased:' || encode(sha256(convert_to(p_key, 'UTF8')), 'hex')
  end
$$;
