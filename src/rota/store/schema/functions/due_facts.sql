-- Returns what is due before p_before, by queue and type: of the first p_heads jobs of each queue
-- and priority. Doctor and the alert rules judge by it.
--   paused: the queue is. declared: the type is, under this name or another.
--   known: a worker that was seen within p_seen knows the type.
--   served: such a worker serves the queue. could: such a worker does both.
--   tried: workers for which these hold have had time to take the jobs.
--
-- A worker has had time when it was alive for a minute or for p_seen. A worker that has just
-- started, such as a drain or a restarted worker, is about to take what it finds. The worker must
-- also have started after the jobs became claimable, or have been alive for a minute after that:
-- one that ended before the jobs were handed back, or before a pause ended, has not tried them.
-- Locks: none; index job_ready.
-- Keeps: M85, whoever asks why due jobs wait gets one answer; M86.
create or replace function {schema}.due_facts(
  p_before timestamptz,
  p_seen interval,
  p_heads int
)
returns table (
  queue text,
  job_type text,
  jobs bigint,
  oldest timestamptz,
  paused boolean,
  declared boolean,
  known boolean,
  served boolean,
  could boolean,
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
    from {schema}.ready_heads(p_heads) h
    where h.run_at < p_before
    group by h.queue, h.job_type
  )
  select
    d.queue,
    d.job_type,
    d.jobs,
    d.oldest,
    {schema}.paused_queues(array[d.queue]) <> '{}',
    exists (
      select from {schema}.job_type t
      where t.name = d.job_type
        or d.job_type = any (t.aliases)
    ),
    coalesce(w.known, false),
    coalesce(w.served, false),
    coalesce(w.could, false),
    coalesce(w.known_tried and w.served_tried, false)
  from due d
  cross join lateral (
    select
      bool_or(d.job_type = any (s.job_types)) as known,
      bool_or(s.queues ? d.queue) as served,
      bool_or(d.job_type = any (s.job_types) and s.queues ? d.queue) as could,
      bool_or(d.job_type = any (s.job_types) and s.tried_to > d.free_at) as known_tried,
      bool_or(s.queues ? d.queue and s.tried_to > d.free_at) as served_tried
    from seen s
  ) w
$$;
