-- Write rows of one place, whose sealed values are sealed anew.
-- Parameters: place text (job, job_history, schedule or batch); refs text[]; olds text[] (as they
--   were read); news text[]
-- Rows: written int8 (a row that has changed meanwhile is left alone)
-- Locks: the rows; indexes job_pkey, job_history_id, schedule_pkey and batch_pkey.
-- Keeps: M45.
with asked as materialized (
  select
    case when :place::text <> 'schedule' then a.ref::int8 end as id,
    a.ref as name,
    a.old::jsonb as old,
    a.new::jsonb as new
  from unnest(:refs::text[], :olds::text[], :news::text[]) a(ref, old, new)
),
of_job as (
  update :schema.job j
  set payload = a.new
  from asked a
  where :place::text = 'job'
    and j.id = a.id
    and j.payload = a.old
  returning j.id
),
of_history as (
  update :schema.job_history h
  set payload = a.new
  from asked a
  where :place::text = 'job_history'
    and h.id = a.id
    and h.payload = a.old
  returning h.id
),
of_schedule as (
  update :schema.schedule s
  set payload = a.new
  from asked a
  where :place::text = 'schedule'
    and s.name = a.name
    and s.payload = a.old
  returning s.name
),
of_batch as (
  update :schema.batch b
  set then_jobs = a.new
  from asked a
  where :place::text = 'batch'
    and b.id = a.id
    and b.then_jobs = a.old
  returning b.id
)
select
  (select count(*) from of_job)
  + (select count(*) from of_history)
  + (select count(*) from of_schedule)
  + (select count(*) from of_batch) as written
