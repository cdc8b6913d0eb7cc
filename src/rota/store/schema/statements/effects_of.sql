-- Read the effects and steps of jobs, and those with a key, in the order in which they were
-- intended.
-- Parameters: jobs int8[]; key text (NULL: none)
-- Rows: key text; step_of int8; place int4; status text; job int8; if_uncertain text;
--   uncertain_before int4; result text; intended_at timestamptz; done_at timestamptz
-- Locks: none; indexes effect_job and effect_pkey.
-- Keeps: M52, what is uncertain is visible.
select
  e.key, e.step_of, e.place, e.status, e.job, e.if_uncertain, e.uncertain_before,
  e.result::text, e.intended_at, e.done_at
from :schema.effects e
where e.job = any (:jobs::int8[])
  or e.key = :key::text
order by e.intended_at, e.place, e.key
