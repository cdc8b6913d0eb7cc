-- Returns the oldest due jobs by queue and type, at most 1,000 of each queue and priority.
-- Paused queues are left out.
-- known: a worker that was seen within p_period knows the type.
-- served: a worker that was seen within p_period serves the queue.
-- tried: a worker for which both hold has had time to take the jobs.
--
-- A worker has had time when it was alive for a minute or for p_period. A worker that has just
-- started, such as a drain or a restarted worker, is about to take what it finds. The worker must
-- also have started after the jobs became claimable, or have been alive for a minute after that:
-- one that ended before the jobs were handed back, or before a pause ended, has not tried them.
create or replace function {schema}.alert_due(p_queue text, p_period interval)
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
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  with seen as materialized (
    select
      w.job_types,
      w.queues,
      -- The worker has tried what was claimable before this moment; NULL: nothing.
      case
        when w.started_at < {schema}.clock() - least(p_period, interval '1 minute')
          then greatest(
            w.started_at,
            {schema}.last_seen(w.heartbeat_at, w.stopped_at) - least(p_period, interval '1 minute')
          )
      end as tried_to
    from {schema}.workers_seen(p_period) w
  ),
  resumed as materialized (
    select a.queue, a.at
    from {schema}.alert_resumed(p_period) a
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
    from {schema}.ready_queues() r(queue, priority)
    cross join lateral (
      select r.queue, j.job_type, j.run_at, j.updated_at
      from {schema}.job j
      where j.queue = r.queue
        and j.priority = r.priority
        and j.status in ('queued', 'failed')
        and j.run_at < {schema}.clock() - p_period
      order by j.run_at
      limit 1000
    ) b
    where (p_queue is null or r.queue = p_queue)
      and not exists (
        select from {schema}.queue q
        where q.name = r.queue
          and {schema}.is_in_force(q.paused_at, q.paused_until)
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
