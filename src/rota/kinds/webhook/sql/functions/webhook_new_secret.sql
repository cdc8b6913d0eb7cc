-- Returns a new secret: 'whsec_' and 32 bytes in base64, 244 bits of them by chance.
create or replace function {schema}.webhook_new_secret()
returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select 'whsec_' || encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'base64')
$$;
