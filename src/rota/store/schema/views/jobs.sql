-- Live and finished jobs together, for people and dashboards. An original has its own id as
-- origin_id. max_attempts is the type's if the job has none; timeout is the job's own.
create or replace view {schema}.jobs as
select
  j.id,
  coalesce(j.origin_id, j.id) as origin_id,
  j.queue, j.job_type, j.payload, j.payload_version,
  j.status, j.priority, j.run_at, j.expires_at, j.attempts,
  coalesce(
    j.max_attempts,
    (
      select t.max_attempts
      from {schema}.job_type t
      where t.name = {schema}.canonical_type(j.job_type)
    ),
    10
  ) as max_attempts,
  j.timeout,
  j.claims, j.locked_by, j.locked_until,
  coalesce(j.losses, 0::smallint) as losses,
  j.cancel_requested_at, j.cancel_reason, j.progress,
  j.last_error, j.error_type, j.response_code, j.verdict, j.verdict_rule,
  j.idempotency_key, j.meta, j.schedule, j.scheduled_for,
  j.batch,
  j.group_key, coalesce(j.group_capacity, 1::smallint) as group_capacity,
  -- A running job keeps both, in case that it is handed back for the same.
  case
    when j.status = 'waiting' then coalesce(j.waits_for, 'group ' || j.group_key)
    when j.status <> 'running' then j.waits_for
  end as waits_for,
  case
    when j.status = 'waiting' then coalesce(j.waits_since, j.run_at)
    when j.status <> 'running' then j.waits_since
  end as waits_since,
  j.created_at, j.updated_at, j.started_at, j.failed_at, j.finished_at,
  j.result, j.release, j.resolution
from (
  select
    null::timestamptz as finished_at,
    null::text as release,
    null::jsonb as resolution,
    null::jsonb as result,
    l.*
  from {schema}.job l
  union all
  select h.*
  from {schema}.job_history h
) j;
