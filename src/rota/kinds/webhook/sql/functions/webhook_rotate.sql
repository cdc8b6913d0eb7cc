-- Gives an endpoint a new secret; both sign for p_for, so that its owner can change it without a
-- delivery that fails. An older one that still signs does so for as long as it would have: who
-- repeats a call whose answer was lost does not end the secret that the owner has. p_secret:
-- 'whsec_' and base64, or that as rota.Secret seals it; NULL: a new one. Returns the secret, as
-- text; a sealed one as JSON.
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
  v_old jsonb;
begin
  perform {schema}.webhook_secret_check(v_secret);
  select e.sealed -> 'secret' into v_old
  from {schema}.webhook_endpoint e
  where e.name = p_name
  for no key update;
  if not found then
    return;
  elsif p_for < interval '0' then
    raise exception 'the old secret is kept for a time that is not negative'
      using errcode = 'invalid_parameter_value';
  elsif {schema}.is_sealed(v_old) and not {schema}.is_sealed(v_secret) then
    raise exception 'the secret of endpoint % is sealed, and the new one is not: call this where '
      'ROTA_SECRET_KEYS is set', p_name
      using errcode = 'invalid_parameter_value';
  end if;
  update {schema}.webhook_endpoint e
  set
    sealed = jsonb_build_object('secret', v_secret, 'old', v_old) || case
      when e.older_until > v_now then jsonb_build_object('older', e.sealed -> 'older')
      when e.old_until > v_now then jsonb_build_object('older', e.sealed -> 'old')
      else '{}'
    end,
    old_until = v_until,
    older_until = case
      when e.older_until > v_now then least(e.older_until, v_until)
      when e.old_until > v_now then least(e.old_until, v_until)
    end,
    changed_at = v_now
  where e.name = p_name;
  perform {schema}.log_action('webhook_rotate', p_why, p_by, p_detail => jsonb_build_object(
    'endpoint', p_name
  ));
  return next v_secret #>> '{}';
end $$;
revoke execute on function {schema}.webhook_rotate(text, jsonb, interval, text, text) from public;
