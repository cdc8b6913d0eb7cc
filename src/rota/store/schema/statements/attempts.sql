-- Read the attempts of a job that did not succeed, in order.
-- Parameters: job int8
-- Rows: claim int4; attempt int4; worker text; release text; started_at timestamptz;
--   finished_at timestamptz; outcome text; error_type text; message text; verdict text;
--   verdict_rule text; response_code int4; stack text; next_run_at timestamptz
-- Locks: none; index attempt_job.
-- Keeps: M13, M43.
select
  claim, attempt,
  worker, release,
  started_at, finished_at,
  outcome, error_type, message,
  verdict, verdict_rule, response_code,
  stack, next_run_at
from :schema.attempt
where job = :job::int8
order by claim, finished_at
