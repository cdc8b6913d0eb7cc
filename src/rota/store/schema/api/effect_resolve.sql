-- Settles an effect by hand, after a person checked it. Done: no job does it again. Not done: the
-- effect is forgotten, and the next attempt begins it anew; of a done effect only with p_again.
-- p_step_of: of a step, any job of its chain. Returns done or not_done; where nothing changed: held
-- (a job is doing it now), is_done, or unknown (no such effect).
-- Locks: the row of the effect; index effect_pkey.
-- Keeps: M52, what is uncertain stops for a person; M87, who and why.
create or replace function {schema}.effect_resolve(
  p_key text,
  p_done boolean,
  p_result jsonb default null,
  p_step_of bigint default null,
  p_why text default null,
  p_by text default null,
  p_again boolean default false
)
returns text
language plpgsql security definer
as $$
declare
  v_origin bigint := 0;
  v_old {schema}.effect;
begin
  if p_done is null or not p_done and p_result is not null then
    raise exception 'rota.effect_resolve: p_done must be true or false, and a result needs true'
      using errcode = 'invalid_parameter_value';
  end if;
  if octet_length(p_result::text) > 65536 then
    raise exception 'rota.effect_resolve: the result is over 64 KiB; nothing was changed'
      using errcode = 'invalid_parameter_value';
  end if;
  if p_step_of is not null then
    v_origin := coalesce(
      (select coalesce(j.origin_id, j.id) from {schema}.job j where j.id = p_step_of),
      (
        select coalesce(h.origin_id, h.id)
        from {schema}.job_history h
        where h.id = p_step_of
        limit 1
      ),
      p_step_of
    );
  end if;
  p_key := {schema}.effect_key(p_key, v_origin);
  select e.* into v_old
  from {schema}.effect e
  where e.key = p_key
    and e.origin_id = v_origin
  for update;
  if not found then
    return 'unknown';
  end if;
  if v_old.done_at is null and {schema}.claim_is_live(v_old.job, v_old.claim) then
    return 'held';
  end if;
  if v_old.done_at is not null and not p_done and p_again is not true then
    return 'is_done';
  end if;
  if p_done then
    update {schema}.effect e
    set
      result = p_result::json,
      done_at = {schema}.clock()
    where e.key = p_key
      and e.origin_id = v_origin;
  else
    delete from {schema}.effect e
    where e.key = p_key
      and e.origin_id = v_origin;
  end if;
  insert into {schema}.action (verb, job, by, why, detail)
  values (
    'resolve',
    v_old.job,
    coalesce({schema}.one_line(p_by, 200), session_user),
    {schema}.one_line(p_why, 500),
    jsonb_build_object('effect', p_key, 'as', case when p_done then 'done' else 'not_done' end)
  );
  return case when p_done then 'done' else 'not_done' end;
end $$;
revoke execute on function {schema}.effect_resolve(
  text, boolean, jsonb, bigint, text, text, boolean
) from public;
