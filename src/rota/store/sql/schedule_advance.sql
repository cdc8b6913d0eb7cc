-- Enqueue ticks of a schedule and move its next_run_at, together.
-- Parameters: name text; next_run_at timestamptz (as it was read); since timestamptz (as it was read); then timestamptz (the next tick after these);
--   ticks timestamptz[]; run_ats timestamptz[]
-- Rows: scheduled_for timestamptz; job int8; live int8 (the run that was still going, of a tick that was skipped). The first row has NULLs. No row when
--   another worker did it, or the schedule was changed.
-- Locks: the row of the schedule, with SKIP LOCKED; index job_schedule.
-- Keeps: M82, one job per tick over the whole fleet; what is not enqueued leaves a row.
select a.scheduled_for, a.job, a.live
from rota.schedule_advance(:name::text, :next_run_at::timestamptz, :since::timestamptz, :then::timestamptz, :ticks::timestamptz[],
  :run_ats::timestamptz[]) a
