-- Writes to the audit log that a person enqueued a job by hand.
-- Keeps: M87, who and why.
create or replace function {schema}.enqueue_log(
  p_job bigint,
  p_why text default null,
  p_by text default null
)
returns void
language sql security definer
as $$
  select {schema}.log_action('enqueue'::text, p_why, p_by, p_job => p_job);
$$;
revoke execute on function {schema}.enqueue_log(bigint, text, text) from public;
