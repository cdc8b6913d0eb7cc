-- Returns why a URL does not fit an endpoint; NULL: it fits. It must be ASCII, at most 2,000
-- characters, with a name or an address in digits as host.
create or replace function {schema}.webhook_url_refusal(p_url text)
returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name constant text := '[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?';
  v_parts text[] := regexp_match(
    p_url,
    '^https?://(?:' || v_name || '|\[([0-9a-f:.]+)\])(?::([0-9]{1,5}))?(?:[/?#][!-~]*)?$',
    'i'
  );
begin
  if p_url ~* '^https?://[^/?#]*@' then
    return 'its URL has no user and no password: requests are signed';
  elsif v_parts is null or length(p_url) > 2000
    or family(v_parts[1]::inet) = 4 or v_parts[2]::int not between 1 and 65535
  then
    raise invalid_text_representation;
  end if;
  return null;
exception when invalid_text_representation then
  return 'its URL begins with https:// or http:// and a host, and has no blanks and only ASCII: '
    'xn--… for the host, %… for the path';
end $$;
