-- Read the run_at of the oldest due job, over all queues and types.
-- Parameters: none
-- Rows: run_at timestamptz; waiting_s float8. NULLs when nothing is due.
-- Locks: none; index job_ready.
-- Keeps: M85, due jobs that no worker claims are seen too.
select
  due.run_at,
  extract(epoch from :schema.clock() - due.run_at)::float8 as waiting_s
from :schema.oldest_due() due(run_at)
