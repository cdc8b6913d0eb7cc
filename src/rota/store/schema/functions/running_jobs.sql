-- Returns at most p_limit of the running jobs, those whose leases end first, each with the longest
-- that its attempt may run.
create or replace function {schema}.running_jobs(p_limit int)
returns table (
  id bigint,
  job_type text,
  queue text,
  worker text,
  attempts int,
  started_at timestamptz,
  locked_until timestamptz,
  progress jsonb,
  timeout interval
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  select
    j.id, j.job_type, j.queue, j.locked_by,
    j.attempts, j.started_at, j.locked_until, j.progress,
    coalesce(j.timeout, t.timeout, interval '5 minutes')
  from (
    select r.*
    from {schema}.job r
    where r.status = 'running'
    order by r.locked_until
    limit p_limit
  ) j
  left join {schema}.job_type t on t.name = {schema}.canonical_type(j.job_type)
$$;
