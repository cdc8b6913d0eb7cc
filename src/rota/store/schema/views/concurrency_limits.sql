-- How many jobs of a queue, or of a job type, may run at once over all workers, how many do, and
-- how many, up to 10,000, are blocked until one of them ends, since when.
create or replace view {schema}.concurrency_limits as
select
  cap.kind,
  cap.name,
  cap.max_running,
  (
    select count(*)::int
    from {schema}.job j
    where j.capped
      and j.waits_for is null
      and case when cap.types is null then j.queue = cap.name else j.job_type = any (cap.types) end
  ) as running,
  waiting.jobs::int as blocked,
  waiting.since as blocked_since
from (
  select 'queue'::text as kind, q.name, q.max_running, null::text[] as types
  from {schema}.queue q
  where q.max_running is not null
  union all
  select 'type'::text, t.name, t.max_running, {schema}.type_names(t.name)
  from {schema}.job_type t
  where t.max_running is not null
) cap
cross join lateral (
  select count(*) as jobs, min(p.waits_since) as since
  from (
    select j.waits_since
    from {schema}.job j
    where j.waits_for = cap.kind || ' ' || cap.name
      and j.status = 'waiting'
    limit 10000
  ) p
) waiting;
