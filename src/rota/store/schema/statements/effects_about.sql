-- Read the latest effects whose `about` contains this.
-- Parameters: about text (JSON); status text (NULL: any); limit int
-- Rows: key text; step_of int8; place int4; status text; job int8; if_uncertain text;
--   uncertain_before int4; result text; about text; intended_at timestamptz; done_at timestamptz
-- Locks: none; index effect_about.
-- Keeps: M70, a mail that was sent is found by its address.
select
  e.key, e.step_of, e.place, e.status, e.job, e.if_uncertain, e.uncertain_before,
  e.result::text, e.about::text, e.intended_at, e.done_at
from :schema.effects e
where e.about @> :about::text::jsonb
  and (:status::text is null or e.status = :status::text)
order by e.intended_at desc
limit :limit::int
