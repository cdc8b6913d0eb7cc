-- Returns at most p_limit running jobs, the first lease to end first.
create or replace function {schema}.running_jobs(p_limit int)
returns table (
  id bigint,
  job_type text,
  queue text,
  worker text,
  started_at timestamptz,
  locked_until timestamptz,
  timeout interval,
  progress jsonb
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select
    j.id, j.job_type, j.queue, j.locked_by,
    j.started_at, j.locked_until, j.timeout, j.progress
  from {schema}.job j
  where j.status = 'running'
  order by j.locked_until
  limit p_limit
$$;
