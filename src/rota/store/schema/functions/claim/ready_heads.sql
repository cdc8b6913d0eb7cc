-- Returns the first p_limit waiting jobs of each queue and priority, in the order of claims: due
-- jobs, then jobs to come that are due before p_before. unread: it waits for another release.
create or replace function {schema}.ready_heads(
  p_limit int,
  p_before timestamptz default 'infinity'::timestamptz,
  p_queues text[] default null
)
returns table (
  queue text,
  priority smallint,
  job_type text,
  run_at timestamptz,
  updated_at timestamptz,
  unread boolean
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select
    r.queue, r.priority, head.job_type, head.run_at, head.updated_at,
    head.waits_for is not null and head.waits_for like 'payload %'
  from {schema}.ready_queues() r(queue, priority)
  cross join lateral (
    select b.job_type, b.run_at, b.updated_at, b.waits_for
    from {schema}.job b
    where b.queue = r.queue
      and b.priority = r.priority
      and b.status in ('queued', 'failed')
      and b.run_at < p_before
    order by b.run_at, b.id
    limit p_limit
  ) head
  where p_queues is null
    or r.queue = any (p_queues)
$$;
