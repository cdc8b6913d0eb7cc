-- Writes what a claim is about to do, and says whether it may. p_place: of a step, how many steps
-- its handler has called, with this step; NULL: an effect. p_entry tells the intents of one claim
-- apart: a repeated call answers the same. p_not_done: when the intent was written of which a
-- person says that it did not happen; a later intent is another. Returns one row:
--   begun      it is this claim's now; `earlier` says how many intents before it may have happened
--   done       it has happened; with its result
--   skip       it may have happened, and by p_if_uncertain it is not to be repeated
--   uncertain  it may have happened, and a person must decide
--   held       another claim is doing it
--   moved      the steps were called in another order before: `expected` was at this place, or,
--              where that is NULL, this step was at another place
--   lost       the claim does not hold its job any more
-- Locks: the row of the effect; waits for a transaction that inserts the same effect.
-- Keeps: M52, an effect that may have happened is never repeated unasked; M32.
create or replace function {schema}.effect_intend(
  p_id bigint,
  p_claims int,
  p_entry int,
  p_key text,
  p_place int,
  p_if_uncertain text,
  p_about jsonb default null,
  p_not_done timestamptz default null
)
returns table (
  state text,
  result text,
  earlier int,
  holder bigint,
  age_s float8,
  expected text
)
language plpgsql
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(p_id, p_claims, false);
  -- A requeued job finds the steps of its origin; an effect is kept under 0, for all jobs.
  v_origin bigint := case
    when p_place is not null then coalesce(v_job.origin_id, v_job.id)
    else 0
  end;
  v_old {schema}.effect;
begin
  if v_job.id is null then
    state := 'lost';
    return next;
    return;
  end if;
  loop
    select e.key into expected
    from {schema}.effect e
    where e.origin_id = v_origin
      and e.place = p_place
      and e.key <> p_key;
    if found then
      state := 'moved';
      return next;
      return;
    end if;
    insert into {schema}.effect (
      origin_id, key, place, job, claim, entry, if_uncertain, about
    )
    values (v_origin, p_key, p_place, p_id, p_claims, p_entry, p_if_uncertain, p_about)
    on conflict do nothing;
    if found and {schema}.effect_key(p_key, v_origin) = p_key then
      state := 'begun';
      earlier := 0;
      return next;
      return;
    elsif found then
      delete from {schema}.effect e
      where e.key = p_key
        and e.origin_id = v_origin;
      p_key := {schema}.effect_key(p_key, v_origin);
    end if;
    select e.* into v_old
    from {schema}.effect e
    where e.key = p_key
      and e.origin_id = v_origin
    for update;
    exit when found;
    -- It was deleted between these statements, or another step took the place: try again.
  end loop;
  earlier := v_old.uncertain_before;
  holder := v_old.job;
  age_s := extract(epoch from {schema}.clock() - v_old.intended_at);
  if v_old.place <> p_place then
    state := 'moved';
  elsif v_old.done_at is not null then
    state := 'done';
    result := v_old.result::text;
  elsif (v_old.job, v_old.claim, v_old.entry) = (p_id, p_claims, p_entry) then
    state := 'begun';
  elsif (v_old.job, v_old.claim) <> (p_id, p_claims)
    and {schema}.claim_is_live(v_old.job, v_old.claim)
  then
    state := 'held';
  elsif p_if_uncertain = 'dead' and v_old.intended_at is distinct from p_not_done then
    state := 'uncertain';
  elsif p_if_uncertain = 'skip' and v_old.intended_at is distinct from p_not_done then
    state := 'skip';
    update {schema}.effect e
    set if_uncertain = 'skip'
    where e.key = p_key
      and e.origin_id = v_origin
      and e.if_uncertain <> 'skip';
  else
    state := 'begun';
    earlier := case
      when v_old.intended_at is distinct from p_not_done then v_old.uncertain_before + 1
      else 0
    end;
    update {schema}.effect e
    set
      job = p_id,
      claim = p_claims,
      entry = p_entry,
      if_uncertain = p_if_uncertain,
      uncertain_before = earlier,
      about = coalesce(p_about, about),
      intended_at = {schema}.clock()
    where e.key = p_key
      and e.origin_id = v_origin;
  end if;
  return next;
end $$;
