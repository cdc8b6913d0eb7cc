-- Writes that this claim is about to do something that must not be repeated blindly. Call it before
-- a mail, a charge or a webhook, commit, and look at `state`:
--   begun      do it, then call effect_finish; if it certainly did not happen, effect_withdraw
--   done       it has happened: do not do it again; `result` is what was kept of it
--   skip       it may have happened, and if_uncertain says not to repeat it
--   uncertain  it may have happened, and a person must decide (effect_resolve): end the job as dead
--   held       another job is doing it: snooze this job
-- if_uncertain: skip, repeat or dead. about: an object by which the effect is found. A second call
-- for the same claim answers the same.
create or replace function {schema}.effect_begin(
  id bigint,
  claims int,
  key text,
  if_uncertain text default 'dead',
  about jsonb default null
)
returns table (state text, result jsonb)
language plpgsql security definer
as $$
declare
  v_wrong text := case
    when effect_begin.key is null or length(effect_begin.key) not between 1 and 255
      then 'key must have 1 to 255 characters'
    when effect_begin.if_uncertain is null
      or effect_begin.if_uncertain not in ('skip', 'repeat', 'dead')
      then 'if_uncertain must be skip, repeat or dead'
    when jsonb_typeof(effect_begin.about) <> 'object'
      or octet_length(effect_begin.about::text) > 4096
      then 'about must be an object of at most 4 KiB'
  end;
begin
  if v_wrong is not null then
    raise exception 'rota.effect_begin: %', v_wrong using errcode = 'invalid_parameter_value';
  end if;
  select i.state, i.result::jsonb into state, result
  from {schema}.effect_intend(
    effect_begin.id, effect_begin.claims, 0,
    effect_begin.key, null::int, effect_begin.if_uncertain, effect_begin.about
  ) i;
  if state = 'lost' then
    perform {schema}.lease_lost(effect_begin.id, effect_begin.claims);
  end if;
  return next;
end $$;
revoke execute on function {schema}.effect_begin(bigint, int, text, text, jsonb) from public;
