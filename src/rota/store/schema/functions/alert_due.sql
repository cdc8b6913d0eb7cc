-- Returns the oldest due jobs by queue and type, at most 1,000 of each queue and priority, of
-- queues that are not paused. known, served: a worker that was seen within p_period knows the type,
-- serves the queue.
--
-- tried: both hold of workers that have had the time to take the jobs. Such a worker was alive for
-- a minute, or for p_period: one that has just started is about to take what it finds, be it a
-- drain or a worker that comes up again. And it started after the jobs could be taken, or was alive
-- for a minute after that: one that ended before the jobs were given back, or before a pause ended,
-- has not tried.
create or replace function alert_due(p_queue text, p_period interval)
returns table (
  queue text,
  job_type text,
  jobs bigint,
  oldest timestamptz,
  known boolean,
  served boolean,
  tried boolean
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path from current
as $$
  with seen as materialized (
    select
      w.job_types,
      w.queues,
      -- The worker has tried what could be taken before then; NULL: nothing.
      case
        when w.started_at < clock() - least(p_period, interval '1 minute')
          then greatest(
            w.started_at,
            coalesce(w.stopped_at, w.heartbeat_at) - least(p_period, interval '1 minute')
          )
      end as tried_to
    from worker w
    where coalesce(w.stopped_at, w.heartbeat_at) > clock() - p_period
  ),
  resumed as materialized (
    select a.queue, a.at
    from alert_resumed(p_period) a
  ),
  due as materialized (
    select
      b.queue,
      b.job_type,
      count(*) as jobs,
      min(b.run_at) as oldest,
      greatest(
        min(b.updated_at),
        (select max(u.at) from resumed u where u.queue is null or u.queue = b.queue)
      ) as free_at
    from ready_queues() r(queue, priority)
    cross join lateral (
      select r.queue, j.job_type, j.run_at, j.updated_at
      from job j
      where j.queue = r.queue
        and j.priority = r.priority
        and j.status in ('queued', 'failed')
        and j.run_at < clock() - p_period
      order by j.run_at
      limit 1000
    ) b
    where (p_queue is null or r.queue = p_queue)
      and not exists (
        select from queue q
        where q.name = r.queue
          and is_in_force(q.paused_at, q.paused_until)
      )
    group by b.queue, b.job_type
  )
  select
    d.queue,
    d.job_type,
    d.jobs,
    d.oldest,
    exists (select from seen s where d.job_type = any (s.job_types)),
    exists (select from seen s where s.queues ? d.queue),
    exists (
      select from seen s
      where d.job_type = any (s.job_types)
        and s.tried_to > d.free_at
    )
    and exists (
      select from seen s
      where s.queues ? d.queue
        and s.tried_to > d.free_at
    )
  from due d
$$;
