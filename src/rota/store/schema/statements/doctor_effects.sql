-- Read effects that may have happened, the oldest first.
-- Parameters: limit int (most rows to read)
-- Rows: facts text (JSON: uncertain [how many], waiting [of these: for a person to decide], oldest
--   [of the waiting: key, step_of, job, age_s; NULL: none])
-- Locks: none; indexes effect_intended and job_pkey.
-- Keeps: M52, what is uncertain is visible.
with uncertain as materialized (
  select e.key, e.step_of, e.job, e.if_uncertain, e.intended_at
  from :schema.effects e
  where e.done_at is null
    and e.status = 'uncertain'
  order by e.intended_at
  limit :limit::int
),
-- Only for these: one that is skipped needs nobody, and one that is repeated will be.
waiting as materialized (
  select u.*
  from uncertain u
  where u.if_uncertain = 'dead'
)
select json_build_object(
  'uncertain', (select count(*) from uncertain),
  'waiting', (select count(*) from waiting),
  'oldest', (
    select json_build_object(
      'key', w.key,
      'step_of', w.step_of,
      'job', w.job,
      'age_s', extract(epoch from :schema.clock() - w.intended_at)
    )
    from waiting w
    order by w.intended_at
    limit 1
  )
)::text as facts
