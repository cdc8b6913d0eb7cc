-- Gives an endpoint a new secret. The older secrets sign for p_for, so that the owner can change
-- without a failed delivery. No secret signs longer than before, and none ends earlier, unless
-- p_for says so: the owner may have any of them if answers of this call were lost. More than ten
-- signing secrets are refused. p_secret: 'whsec_' and base64, or sealed by rota.Secret; NULL: a
-- random secret. Returns the secret, as text; a sealed secret as JSON.
-- Locks: the row of the endpoint.
-- Keeps: M87, who and why.
create or replace function {schema}.webhook_rotate(
  p_name text,
  p_secret jsonb default null,
  p_for interval default '1 day',
  p_why text default null,
  p_by text default null
)
returns setof text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_secret jsonb := coalesce(p_secret, to_jsonb({schema}.webhook_new_secret()));
  v_now timestamptz := {schema}.clock();
  v_until timestamptz := v_now + coalesce(p_for, interval '1 day');
  v_sealed jsonb;
begin
  perform {schema}.webhook_secret_check(v_secret);
  select e.sealed into v_sealed
  from {schema}.webhook_endpoint e
  where e.name = p_name
  for no key update;
  if not found then
    return;
  elsif p_for < interval '0' then
    raise exception 'the old secret is kept for a time that is not negative'
      using errcode = 'invalid_parameter_value';
  elsif {schema}.is_sealed(v_sealed #> '{0,secret}') and not {schema}.is_sealed(v_secret) then
    raise exception 'the secret of endpoint % is sealed, and the new one is not: call this where '
      'ROTA_SECRET_KEYS is set', p_name
      using errcode = 'invalid_parameter_value';
  end if;
  v_sealed := jsonb_build_array(jsonb_build_object('secret', v_secret)) || coalesce(
    (
      select jsonb_agg(s.one || jsonb_build_object('until', s.until) order by s.place)
      from (
        select o.one, o.place, least((o.one ->> 'until')::timestamptz, v_until) as until
        from jsonb_array_elements(v_sealed) with ordinality o(one, place)
      ) s
      where s.until > v_now
    ),
    '[]'
  );
  if jsonb_array_length(v_sealed) > 10 then
    raise exception 'endpoint % has ten secrets that sign: wait until one ends, or end all but the '
      'new one with keep 0s', p_name
      using errcode = 'invalid_parameter_value';
  end if;
  update {schema}.webhook_endpoint e
  set sealed = v_sealed, changed_at = v_now
  where e.name = p_name;
  perform {schema}.log_action('webhook_rotate', p_why, p_by, p_detail => jsonb_build_object(
    'endpoint', p_name
  ));
  return next v_secret #>> '{}';
end $$;
revoke execute on function {schema}.webhook_rotate(text, jsonb, interval, text, text) from public;
