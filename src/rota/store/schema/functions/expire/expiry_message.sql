-- Returns the error of a job that was not started before its expires_at, with the caller's reason.
-- A worker in Python writes such an error itself, in `model/settle.py`.
create or replace function {schema}.expiry_message(p_job {schema}.job, p_reason text)
returns text
language sql stable
as $$
  select format(
    'not started%s before expires_at (%s): %s',
    case when p_job.attempts > (p_job.status = 'running')::int then ' again' else '' end,
    {schema}.utc_text(p_job.expires_at),
    p_reason
  )
$$;
