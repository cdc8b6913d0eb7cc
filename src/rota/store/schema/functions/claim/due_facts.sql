-- Returns what is due before p_before, by queue and type, among the first p_heads jobs of each
-- queue and priority; p_paused: of paused queues too. Jobs that wait for a release which can read
-- their payloads are left out (payloads_unread). Doctor and the alert rules judge by it.
--   paused: the queue is. declared: the type is, under this name or another.
--   known: a worker that was seen within p_seen knows the type.
--   served: such a worker serves the queue.
--   still_known: known, and if a live worker serves the queue, by a live worker or a drain: any
--   other worker that has stopped was replaced. could: such a worker also serves the queue.
--   tried: the worker of `could` has had time to take the jobs.
--
-- A worker has had time when it was alive for a minute or for p_seen, because a drain that has just
-- started is about to take the jobs. It must also have started after they became claimable, or have
-- been alive for a minute after that: a worker that ended before has not tried them.
-- Locks: none; index job_ready.
-- Keeps: M85, whoever asks why due jobs wait gets one answer; M86.
create or replace function {schema}.due_facts(
  p_before timestamptz,
  p_seen interval,
  p_heads int,
  p_queue text,
  p_paused boolean
)
returns table (
  queue text,
  job_type text,
  jobs bigint,
  oldest timestamptz,
  paused boolean,
  declared boolean,
  known boolean,
  still_known boolean,
  served boolean,
  could boolean,
  tried boolean
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with seen as materialized (
    select
      w.job_types,
      w.queues,
      {schema}.is_alive(w.heartbeat_at, w.stopped_at) as is_alive,
      {schema}.was_drain(w.started_at, w.stopped_at) as was_drain,
      -- The worker has tried what was claimable before this moment; NULL: nothing.
      case
        when w.started_at < {schema}.clock() - least(p_seen, interval '1 minute')
          then greatest(
            w.started_at,
            {schema}.last_seen(w.heartbeat_at, w.stopped_at) - least(p_seen, interval '1 minute')
          )
      end as tried_to
    from {schema}.workers_seen(p_seen) w
  ),
  resumed as materialized (
    select a.queue, a.at
    from {schema}.alert_resumed(p_seen) a
  ),
  queues as materialized (
    select q.queue, {schema}.paused_queues(array[q.queue]) <> '{}' as paused
    from (
      select distinct r.queue
      from {schema}.ready_queues() r(queue, priority)
      where p_queue is null
        or r.queue = p_queue
    ) q
  ),
  due as materialized (
    select
      h.queue,
      h.job_type,
      count(*) as jobs,
      min(h.run_at) as oldest,
      greatest(
        min(h.updated_at),
        (select max(u.at) from resumed u where u.queue is null or u.queue = h.queue)
      ) as free_at
    from {schema}.ready_heads(
      p_heads, p_before,
      array(select q.queue from queues q where p_paused or not q.paused)
    ) h
    where not h.unread
    group by h.queue, h.job_type
  )
  select
    d.queue,
    d.job_type,
    d.jobs,
    d.oldest,
    (select q.paused from queues q where q.queue = d.queue),
    exists (
      select from {schema}.job_type t
      where t.name = d.job_type
        or d.job_type = any (t.aliases)
    ),
    exists (select from seen s where d.job_type = any (s.job_types)),
    now.still_known,
    exists (select from seen s where s.queues ? d.queue),
    now.could,
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
  cross join lateral (
    select
      coalesce(bool_or(s.counts), false) as still_known,
      coalesce(bool_or(s.counts and s.queues ? d.queue), false) as could
    from (
      select
        k.queues,
        k.is_alive
        or k.was_drain
        or not exists (select from seen o where o.is_alive and o.queues ? d.queue) as counts
      from seen k
      where d.job_type = any (k.job_types)
    ) s
  ) now
$$;
