-- Returns the run_at of the oldest due job; NULL: no job is due.
create or replace function {schema}.oldest_due()
returns timestamptz
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select min(oldest.run_at)
  from {schema}.ready_queues() r(queue, priority)
  cross join lateral (
    select b.run_at
    from {schema}.job b
    where b.queue = r.queue
      and b.priority = r.priority
      and b.status in ('queued', 'failed')
      and b.run_at <= {schema}.clock()
    order by b.run_at
    limit 1
  ) oldest
$$;
