-- Moves the job that holds an idempotency key, as job_reschedule does. Answers as in key_cancel.
-- Locks: the row of the job; index job_pkey.
-- Keeps: M87; M30, a job that a worker has just claimed is refused.
create or replace function {schema}.key_reschedule(
  p_key text,
  p_job_type text default null,
  p_why text default null,
  p_by text default null,
  p_run_at timestamptz default null,
  p_delay interval default null,
  p_priority int default null,
  p_queue text default null
)
returns table (id bigint, answer text, status text, job_type text)
language sql security definer
as $$
  select *
  from {schema}.key_act(
    'reschedule'::text, p_key, p_job_type, p_why, p_by,
    p_run_at, p_delay, p_priority, p_queue
  )
$$;
revoke execute on function {schema}.key_reschedule(
  text, text, text, text, timestamptz, interval, int, text
) from public;
