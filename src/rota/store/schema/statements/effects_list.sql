-- List the done, or the other, effects and steps, the latest first.
-- Parameters: done boolean; status text (of effects that are not done; NULL: any); limit int
-- Rows: key text; step_of int8; place int4; status text; job int8; if_uncertain text;
--   uncertain_before int4; result text; about text; intended_at timestamptz; done_at timestamptz
-- Locks: none; index effect_done or effect_intended.
-- Keeps: M52, what is uncertain is visible.
(
  select
    e.key, e.step_of, e.place, e.status, e.job, e.if_uncertain, e.uncertain_before,
    e.result::text, e.about::text, e.intended_at, e.done_at
  from :schema.effects e
  where :done::boolean
    and e.done_at is not null
  order by e.done_at desc
  limit :limit::int
)
union all
(
  select
    e.key, e.step_of, e.place, e.status, e.job, e.if_uncertain, e.uncertain_before,
    e.result::text, e.about::text, e.intended_at, e.done_at
  from :schema.effects e
  where not :done::boolean
    and e.done_at is null
    and (:status::text is null or e.status = :status::text)
  order by e.intended_at desc
  limit :limit::int
)
