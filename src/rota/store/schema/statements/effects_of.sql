-- Read the latest effects and steps of jobs, or with a key, or of jobs with it, in order of intent.
-- Parameters: jobs int8[] (NULL: all); key text (NULL: any); status text (NULL: any); limit int
-- Rows: key text; step_of int8; place int4; status text; job int8; if_uncertain text;
--   uncertain_before int4; result text; about text; intended_at timestamptz; done_at timestamptz
-- Locks: none; indexes effect_job and effect_pkey.
-- Keeps: M52, what is uncertain is visible.
select
  l.key, l.step_of, l.place, l.status, l.job, l.if_uncertain, l.uncertain_before,
  l.result::text, l.about::text, l.intended_at, l.done_at
from (
  select e.*
  from :schema.effects e
  where (e.job = any (:jobs::int8[]) or :jobs::int8[] is null and e.key = :key::text)
    and (:key::text is null or e.key = :key::text)
    and (:status::text is null or e.status = :status::text)
  order by e.intended_at desc, e.place desc, e.key desc
  limit :limit::int
) l
order by l.intended_at, l.place, l.key
