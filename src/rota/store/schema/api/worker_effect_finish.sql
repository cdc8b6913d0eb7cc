-- Writes that what worker_effect_begin announced has happened, and what to keep of it, such as the
-- provider's message id. A second call for the same claim answers the same.
create or replace function {schema}.worker_effect_finish(
  id bigint,
  claims int,
  key text,
  result jsonb default null
)
returns void
language plpgsql security definer
as $$
begin
  if octet_length(result::text) > 65536 then
    raise warning 'the result of effect % is over 64 KiB and is not kept', key;
    result := null;
  end if;
  if not {schema}.effect_end(id, claims, 0, key, false, true, result::json) then
    perform {schema}.job_by_claim(id, claims);
    raise exception 'rota.worker_effect_finish: this claim has not begun effect %', key
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
revoke execute on function {schema}.worker_effect_finish(bigint, int, text, jsonb) from public;
