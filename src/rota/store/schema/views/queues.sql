-- The known queues: with jobs, of declared job types, or paused or limited before. The columns of a
-- pause are NULL unless it is in force.
create or replace view {schema}.queues as
select
  known.name,
  q.max_running,
  pause.paused_at, pause.paused_until, pause.paused_by, pause.paused_why
from (
  select r.queue as name
  from {schema}.ready_queues() r
  union
  select t.queue
  from {schema}.job_type t
  union
  select p.name
  from {schema}.queue p
) known
left join {schema}.queue q on q.name = known.name
left join lateral (
  select q.paused_at, q.paused_until, q.paused_by, q.paused_why
  where {schema}.is_in_force(q.paused_at, q.paused_until)
) pause on true;
