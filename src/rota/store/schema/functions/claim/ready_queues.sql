-- Returns the queues and priorities with jobs due or to come, by one index descent for each.
create or replace function {schema}.ready_queues()
returns table (queue text, priority smallint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  with recursive found as (
    (
      select b.queue, b.priority
      from {schema}.job b
      where b.status in ('queued', 'failed')
      order by b.queue, b.priority
      limit 1
    )
    union all
    select further.queue, further.priority
    from found f
    cross join lateral (
      select b.queue, b.priority
      from {schema}.job b
      where b.status in ('queued', 'failed')
        and (b.queue, b.priority) > (f.queue, f.priority)
      order by b.queue, b.priority
      limit 1
    ) further
  )
  select f.queue, f.priority
  from found f
$$;
