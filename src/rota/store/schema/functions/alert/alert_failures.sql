-- Returns the attempts among the newest 10,000 between p_since and p_until that failed, of a type;
-- p_job_type NULL: of all types.
create or replace function {schema}.alert_failures(
  p_since timestamptz, p_until timestamptz, p_job_type text
)
returns table (
  job bigint,
  job_type text,
  error_type text,
  finished_at timestamptz,
  worker text,
  release text
)
language sql stable
set enable_sort = off
as $$
  select
    newest.job, newest.job_type, newest.error_type, newest.finished_at,
    newest.worker, newest.release
  from (
    select a.job, a.job_type, a.error_type, a.finished_at, a.worker, a.release, a.outcome
    from {schema}.attempt a
    where a.finished_at > p_since
      and a.finished_at <= p_until
    order by a.finished_at desc
    limit 10000
  ) newest
  where newest.outcome in ('failed', 'dead')
    and (p_job_type is null or newest.job_type = p_job_type)
$$;
