-- The caps: how many jobs of a queue, or of a job type, may run at once over all workers (most),
-- how many do, and how many are parked until one of them ends, since when. What is parked is
-- counted up to 10,000.
create or replace view {schema}.caps as
select
  cap.kind,
  cap.name,
  cap.most,
  cap.running::int as running,
  parked.jobs::int as parked,
  parked.since as parked_since
from (
  select
    'queue'::text as kind,
    q.name,
    q.max_running as most,
    (
      select count(*)
      from {schema}.job j
      where j.capped
        and j.waits_for is null
        and j.queue = q.name
    ) as running
  from {schema}.queue q
  where q.max_running is not null
  union all
  select
    'type'::text,
    t.name,
    t.max_running,
    (
      select count(*)
      from {schema}.job j
      where j.capped
        and j.waits_for is null
        and j.job_type = any ({schema}.type_names(t.name))
    )
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
) parked;
