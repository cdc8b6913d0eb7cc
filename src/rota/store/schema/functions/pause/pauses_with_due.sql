-- Returns the pauses of queues, and of everything (queue NULL), in force since before p_before: who
-- paused, why, since and until when, and how many jobs are due, counted up to p_counted; with
-- p_queue only in that queue. Doctor and the alert rules judge by it.
-- Locks: none; index job_ready, up to p_counted jobs of each paused queue.
-- Keeps: M86, what is held back is seen; M87.
create or replace function {schema}.pauses_with_due(
  p_before timestamptz,
  p_counted int,
  p_queue text
)
returns table (
  queue text,
  since timestamptz,
  until timestamptz,
  by text,
  why text,
  due int
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select p.queue, p.paused_at, p.paused_until, p.paused_by, p.paused_why, counted.due
  from (
    select q.name as queue, q.paused_at, q.paused_until, q.paused_by, q.paused_why
    from {schema}.queue q
    union all
    select null, i.paused_at, i.paused_until, i.paused_by, i.paused_why
    from {schema}.installation i
  ) p
  cross join lateral (
    select count(*)::int as due
    from (
      select from {schema}.ready_queues() r(queue, priority)
      cross join lateral (
        select from {schema}.job j
        where j.queue = r.queue
          and j.priority = r.priority
          and j.status in ('queued', 'failed')
          and j.run_at <= {schema}.clock()
        limit p_counted
      ) of_priority
      where r.queue = coalesce(p.queue, p_queue, r.queue)
      limit p_counted
    ) c
  ) counted
  where {schema}.is_in_force(p.paused_at, p.paused_until)
    and p.paused_at < p_before
$$;
