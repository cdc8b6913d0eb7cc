-- Every run of a schedule, with its outcome. A dead run ended when it died, however late it was
-- archived. Without a row a job has succeeded, if its type has history = 'failures', or is gone.
create or replace view {schema}.runs as
select
  r.schedule,
  r.scheduled_for,
  r.job,
  r.enqueued_at,
  coalesce(j.status, case t.history when 'failures' then 'succeeded' else 'gone' end) as status,
  j.attempts,
  j.started_at,
  coalesce(j.finished_at, j.failed_at) as ended_at,
  case
    when j.status in ('succeeded', 'cancelled', 'dead', 'failed')
      then coalesce(j.finished_at, j.failed_at) - j.started_at
  end as duration,
  j.error_type,
  j.last_error
from {schema}.schedule_run r
left join lateral (
  select
    l.status, l.attempts, l.started_at, l.failed_at,
    null::timestamptz as finished_at,
    l.error_type, l.last_error
  from {schema}.job l
  where l.id = r.job
  union all
  select
    h.status, h.attempts, h.started_at, h.failed_at,
    case when h.status <> 'dead' then h.finished_at end,
    h.error_type, h.last_error
  from {schema}.job_history h
  where h.id = r.job
  limit 1
) j on true
left join {schema}.schedule s on j.status is null and s.name = r.schedule
left join {schema}.job_type t on t.name = {schema}.canonical_type(s.job_type);
