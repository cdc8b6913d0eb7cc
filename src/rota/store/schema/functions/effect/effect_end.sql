-- Ends an intent of this claim. p_done: it has happened, and p_result is kept; otherwise it
-- certainly did not, and the intent is taken back, but stays uncertain if an earlier intent may
-- have happened. Returns whether the claim holds its job and the intent; if not, it wrote nothing.
-- Locks: the row of the effect; index effect_pkey.
-- Keeps: M52; M32, a claim that has lost its job writes no effect.
create or replace function {schema}.effect_end(
  p_id bigint,
  p_claims int,
  p_entry int,
  p_key text,
  p_is_step boolean,
  p_done boolean,
  p_result json
)
returns boolean
language plpgsql
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(p_id, p_claims, false);
  v_origin bigint := case when p_is_step then coalesce(v_job.origin_id, v_job.id) else 0 end;
begin
  if v_job.id is null then
    return false;
  end if;
  p_key := {schema}.effect_key(p_key, v_origin);
  if p_done then
    update {schema}.effect e
    set
      result = p_result,
      done_at = {schema}.clock()
    where e.key = p_key
      and e.origin_id = v_origin
      and (e.job, e.claim, e.entry) = (p_id, p_claims, p_entry);
    return found;
  end if;
  delete from {schema}.effect e
  where e.key = p_key
    and e.origin_id = v_origin
    and (e.job, e.claim, e.entry) = (p_id, p_claims, p_entry)
    and e.done_at is null
    and e.uncertain_before = 0;
  return true;
end $$;
