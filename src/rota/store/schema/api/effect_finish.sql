-- Writes that what effect_begin announced has happened, and what to keep of it, such as the
-- provider's message id. A second call for the same claim answers the same.
create or replace function {schema}.effect_finish(
  id bigint,
  claims int,
  key text,
  result jsonb default null
)
returns void
language plpgsql security definer
as $$
begin
  if octet_length(effect_finish.result::text) > 65536 then
    raise warning 'the result of effect % is over 64 KiB and is not kept', effect_finish.key;
    effect_finish.result := null;
  end if;
  if not {schema}.effect_end(
    effect_finish.id, effect_finish.claims, 0, effect_finish.key, false, true,
    effect_finish.result::json
  ) then
    perform {schema}.job_by_claim(effect_finish.id, effect_finish.claims);
    raise exception 'rota.effect_finish: this claim has not begun effect %', effect_finish.key
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
revoke execute on function {schema}.effect_finish(bigint, int, text, jsonb) from public;
