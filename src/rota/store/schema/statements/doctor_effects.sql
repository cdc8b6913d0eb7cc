-- Read effects that may have happened, and the oldest that waits for a person.
-- Parameters: limit int (most rows to count of each)
-- Rows: facts text (JSON: uncertain [how many], waiting [of these: for a person to decide], oldest
--   [of the waiting: key, step_of, job, age_s; NULL: none])
-- Locks: none; indexes effect_intended and job_pkey.
-- Keeps: M52, what is uncertain is visible.
with uncertain as materialized (
  select
  from :schema.effects e
  where e.done_at is null
    and e.status = 'uncertain'
  limit :limit::int
),
-- An effect that is skipped or repeated needs nobody. Read apart: skipped effects must not hide it.
waiting as materialized (
  select e.key, e.step_of, e.job, e.intended_at
  from :schema.effects e
  where e.done_at is null
    and e.if_uncertain = 'dead'
    and e.status = 'uncertain'
  order by e.intended_at
  limit :limit::int
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
