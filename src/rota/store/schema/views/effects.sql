-- Effects and steps, with their status: done; intended, while the claim that intends it still holds
-- its job; uncertain, if it may have happened. step_of: a step's origin; NULL: an effect.
create or replace view {schema}.effects as
select
  e.key,
  nullif(e.origin_id, 0) as step_of,
  e.place,
  case
    when e.done_at is not null then 'done'
    when {schema}.claim_is_live(e.job, e.claim) then 'intended'
    else 'uncertain'
  end as status,
  e.job,
  e.claim,
  e.if_uncertain,
  e.uncertain_before,
  e.result::jsonb as result,
  e.about,
  e.intended_at,
  e.done_at
from {schema}.effect e;
