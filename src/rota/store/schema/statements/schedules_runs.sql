-- Read the last runs of each of the first schedules by name, the newest first.
-- Parameters: schedules int; runs int
-- Rows: schedule text; job int8; scheduled_for timestamptz; enqueued_at timestamptz; status text;
--   attempts int4; started_at timestamptz; ended_at timestamptz; ran_s float8; error_type text;
--   last_error text
-- Locks: none; indexes schedule_pkey, schedule_run_pkey, job_pkey and job_history_id.
-- Keeps: M10, every run with outcome and duration.
select
  s.name as schedule,
  r.job, r.scheduled_for, r.enqueued_at,
  r.status, r.attempts,
  r.started_at, r.ended_at,
  extract(epoch from r.duration)::float8 as ran_s,
  r.error_type, r.last_error
from (
  select name
  from :schema.schedule
  order by name
  limit :schedules::int
) s
cross join lateral (
  select *
  from :schema.runs v
  where v.schedule = s.name
  order by v.job desc
  limit :runs::int
) r
order by s.name, r.job desc
