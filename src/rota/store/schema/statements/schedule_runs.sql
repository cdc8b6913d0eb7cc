-- Read the runs of a schedule, newest first.
-- Parameters: schedule text; before int8 (NULL: from the newest on); limit int
-- Rows: job int8; scheduled_for timestamptz; enqueued_at timestamptz; status text; attempts int4;
--   started_at timestamptz; ended_at timestamptz; ran_s float8; error_type text; last_error text
-- Locks: none; indexes schedule_run_pkey, job_pkey and job_history_id.
-- Keeps: M10, every run with outcome and duration, without reading the runs of other schedules.
select
  r.job, r.scheduled_for, r.enqueued_at,
  r.status, r.attempts,
  r.started_at, r.ended_at,
  extract(epoch from r.duration)::float8 as ran_s,
  r.error_type, r.last_error
from :schema.runs r
where r.schedule = :schedule::text
  and (:before::int8 is null or r.job < :before::int8)
order by r.job desc
limit :limit::int
