-- Writes that this claim is about to do something that must not be repeated blindly. Call it before
-- a mail, a charge or a webhook, commit, and look at `state`:
--   begun      do it, then call worker_effect_finish; if it certainly did not happen,
--              worker_effect_withdraw
--   done       it has happened: do not do it again; `result` is what was kept of it
--   skip       it may have happened, and if_uncertain says not to repeat it
--   uncertain  it may have happened, and a person must decide (effect_resolve): end the job as dead
--   held       another job is doing it: snooze this job
-- if_uncertain: skip, repeat or dead. about: an object by which the effect is found. A second call
-- for the same claim answers the same.
create or replace function {schema}.worker_effect_begin(
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
    when key is null or length(key) not between 1 and 255
      then 'key must have 1 to 255 characters'
    when if_uncertain is null or if_uncertain not in ('skip', 'repeat', 'dead')
      then 'if_uncertain must be skip, repeat or dead'
    when jsonb_typeof(about) <> 'object' or octet_length(about::text) > 4096
      then 'about must be an object of at most 4 KiB'
  end;
begin
  if v_wrong is not null then
    raise exception 'rota.worker_effect_begin: %', v_wrong using errcode = '22023';
  end if;
  select i.state, i.result::jsonb into state, result
  from {schema}.effect_intend(id, claims, 0, key, null::int, if_uncertain, about) i;
  if state = 'lost' then
    perform {schema}.lease_lost(id, claims);
  end if;
  return next;
end $$;
revoke execute on function {schema}.worker_effect_begin(bigint, int, text, text, jsonb) from public;
