-- Counts due jobs and jobs to come, each up to p_limit, for p_queues pairs of queue and priority.
create or replace function {schema}.ready_counts(p_queues int, p_limit int)
returns table (
  queue text,
  priority smallint,
  due bigint,
  later bigint,
  oldest_at timestamptz
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select
    r.queue,
    r.priority,
    (
      select count(*)
      from (
        select from {schema}.job j
        where j.queue = r.queue
          and j.priority = r.priority
          and j.status in ('queued', 'failed')
          and j.run_at <= {schema}.clock()
        limit p_limit
      ) counted
    ),
    (
      select count(*)
      from (
        select from {schema}.job j
        where j.queue = r.queue
          and j.priority = r.priority
          and j.status in ('queued', 'failed')
          and j.run_at > {schema}.clock()
        limit p_limit
      ) counted
    ),
    (
      select j.run_at
      from {schema}.job j
      where j.queue = r.queue
        and j.priority = r.priority
        and j.status in ('queued', 'failed')
      order by j.run_at
      limit 1
    )
  from (
    select q.queue, q.priority
    from {schema}.ready_queues() q(queue, priority)
    limit p_queues
  ) r
$$;
