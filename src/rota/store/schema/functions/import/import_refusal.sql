-- Returns why a row of somebody's own queue cannot be a job, as job_check would say of an INSERT;
-- NULL: it can. The setting of a type that only its code can fill (a key, a group, a limit) counts.
create or replace function {schema}.import_refusal(
  p_job_type text,
  p_payload jsonb,
  p_queue text,
  p_priority int,
  p_max_attempts int,
  p_key text,
  p_run_at timestamptz
)
returns text
language plpgsql stable
as $$
begin
  return coalesce(
    {schema}.job_refusal(jsonb_populate_record(null::{schema}.job, jsonb_build_object(
      'status', 'queued', 'job_type', p_job_type, 'payload', p_payload, 'queue', p_queue,
      'priority', p_priority, 'max_attempts', p_max_attempts, 'idempotency_key', p_key,
      'run_at', p_run_at
    ))),
    {schema}.key_refusal(p_job_type, p_key is null, true, '{}'::jsonb),
    {schema}.secret_refusal(p_job_type, p_payload)
  );
end $$;
