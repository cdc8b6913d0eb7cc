-- Refuses what is no endpoint's secret, without showing any of it. NULL passes.
create or replace function {schema}.webhook_secret_check(p_secret jsonb)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_fits boolean := case
    when p_secret is null or {schema}.is_sealed(p_secret)
      then true
    when p_secret #>> '{}' ~ '^whsec_([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}([A-Za-z0-9+/]|=)=)?$'
      then octet_length(decode(substr(p_secret #>> '{}', 7), 'base64')) between 24 and 64
    else false
  end;
begin
  if not v_fits then
    raise exception 'the secret of a webhook is whsec_ and 24 to 64 bytes in base64'
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
