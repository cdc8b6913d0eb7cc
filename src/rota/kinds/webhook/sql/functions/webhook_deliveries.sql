-- Lists the deliveries of an endpoint, the newest first, with code, seconds and text of the last
-- response. p_status: only jobs with this status.
-- Locks: none; indexes webhook_delivery_endpoint, action_job, job_pkey, job_history_id and
--   attempt_job.
create or replace function {schema}.webhook_deliveries(
  p_endpoint text,
  p_status text default null,
  p_limit int default 100
)
returns table (
  event text,
  event_id text,
  job bigint,
  status text,
  attempts int,
  code int,
  seconds float8,
  response text,
  at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp set jit = off
as $$
  select
    d.event,
    d.event_id,
    n.job,
    j.status,
    j.attempts,
    coalesce((j.result ->> 'code')::int, j.response_code),
    coalesce(
      (j.result ->> 'seconds')::float8,
      (
        select round(extract(epoch from a.finished_at - a.started_at)::numeric, 3)::float8
        from {schema}.attempt a
        where a.job = n.job
        order by a.finished_at desc
        limit 1
      )
    ),
    coalesce(j.result ->> 'response', j.last_error),
    coalesce(j.finished_at, j.failed_at, j.created_at, d.created_at)
  from {schema}.webhook_delivery d
  cross join lateral (select {schema}.webhook_job(d.job) as job) n
  left join lateral (select v.* from {schema}.jobs v where v.id = n.job limit 1) j on true
  where d.endpoint = (
      select e.id
      from {schema}.webhook_endpoint e
      where e.name = p_endpoint
    )
    and (p_status is null or j.status = p_status)
  order by d.job desc
  limit coalesce(p_limit, 100)
$$;
revoke execute on function {schema}.webhook_deliveries(text, text, int) from public;
