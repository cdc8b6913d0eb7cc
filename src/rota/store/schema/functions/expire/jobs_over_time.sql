-- Returns jobs that have been running for longer than their attempt may take and p_margin more, the
-- first to begin first, among p_read running jobs.
-- Locks: none; index job_lease.
create or replace function {schema}.jobs_over_time(p_margin interval, p_read int, p_limit int)
returns table (
  id bigint,
  job_type text,
  worker text,
  running_s float8,
  timeout_s float8
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with running as materialized (
    select j.id, j.job_type, j.locked_by, j.started_at, j.timeout
    from {schema}.job j
    where j.status = 'running'
    order by j.locked_until
    limit p_read
  ),
  types as materialized (
    select d.job_type, coalesce(t.timeout, interval '5 minutes') as timeout
    from (select distinct r.job_type from running r) d
    left join {schema}.job_type t on t.name = {schema}.canonical_type(d.job_type)
  ),
  timed as (
    select r.*, coalesce(r.timeout, t.timeout) as may_run
    from running r
    join types t on t.job_type = r.job_type
  )
  select
    o.id, o.job_type, o.locked_by,
    extract(epoch from {schema}.clock() - o.started_at)::float8,
    extract(epoch from o.may_run)::float8
  from timed o
  where o.started_at < {schema}.clock() - o.may_run - p_margin
  order by o.started_at
  limit p_limit
$$;
