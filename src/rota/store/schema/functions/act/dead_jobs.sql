-- Counts the dead jobs, up to p_limit: of all types or of p_job_type, died at any time or since
-- p_since. Returns also the types of the newest, and when the oldest of all died.
-- Locks: none; index job_dead.
create or replace function {schema}.dead_jobs(
  p_limit int,
  p_since timestamptz default '-infinity'::timestamptz,
  p_job_type text default null
)
returns table (jobs bigint, oldest_at timestamptz, job_types text[])
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select
    count(*),
    (
      select j.failed_at
      from {schema}.job j
      where j.status = 'dead'
      order by j.failed_at
      limit 1
    ),
    array_agg(d.job_type)
  from (
    select j.job_type
    from {schema}.job j
    where j.status = 'dead'
      and j.failed_at > p_since
      and (p_job_type is null or j.job_type = p_job_type)
    order by j.failed_at desc
    limit p_limit
  ) d
$$;
