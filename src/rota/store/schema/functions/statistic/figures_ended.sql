-- Returns what ended in [p_from, p_to), per hour, type and queue. Both are of one day, of which it
-- reads the blocks from p_first on.
create or replace function {schema}.figures_ended(
  p_from timestamptz,
  p_to timestamptz,
  p_first bigint
)
returns table (
  hour timestamptz,
  job_type text,
  queue text,
  succeeded bigint,
  succeeded_late bigint,
  cancelled bigint,
  waited jsonb,
  ran jsonb
)
language plpgsql stable
set jit = off set max_parallel_workers_per_gather = 0
as $$
begin
  return query execute format($read$
    with alike as materialized (
      select
        date_trunc('hour', h.finished_at, 'UTC') as hour,
        h.job_type, h.queue, h.status,
        h.attempts > 1 as is_late,
        {schema}.time_bucket(h.started_at - h.run_at) as waited,
        {schema}.time_bucket(h.finished_at - h.started_at) as ran,
        count(*) as jobs
      from {schema}.job_history h
      where h.finished_at >= $1
        and h.finished_at < $2
        %s
      group by 1, 2, 3, 4, 5, 6, 7
    ),
    counted as (
      select
        a.hour, a.job_type, a.queue,
        coalesce(sum(a.jobs) filter (where a.status = 'succeeded'), 0) as succeeded,
        coalesce(sum(a.jobs) filter (where a.status = 'succeeded' and a.is_late), 0)
          as succeeded_late,
        coalesce(sum(a.jobs) filter (where a.status = 'cancelled'), 0) as cancelled
      from alike a
      where a.status <> 'dead'
      group by 1, 2, 3
    ),
    waits as (
      select b.hour, b.job_type, b.queue, jsonb_object_agg(b.waited, b.jobs) as buckets
      from (
        select a.hour, a.job_type, a.queue, a.waited, sum(a.jobs) as jobs
        from alike a
        where a.status = 'succeeded'
          and a.waited is not null
        group by 1, 2, 3, 4
      ) b
      group by 1, 2, 3
    ),
    runs as (
      select b.hour, b.job_type, b.queue, jsonb_object_agg(b.ran, b.jobs) as buckets
      from (
        select a.hour, a.job_type, a.queue, a.ran, sum(a.jobs) as jobs
        from alike a
        where a.status = 'succeeded'
          and a.ran is not null
        group by 1, 2, 3, 4
      ) b
      group by 1, 2, 3
    )
    select
      c.hour, c.job_type, c.queue,
      c.succeeded::bigint, c.succeeded_late::bigint, c.cancelled::bigint,
      coalesce(w.buckets, '{}'), coalesce(r.buckets, '{}')
    from counted c
    left join waits w on w.hour = c.hour and w.job_type = c.job_type and w.queue = c.queue
    left join runs r on r.hour = c.hour and r.job_type = c.job_type and r.queue = c.queue
  $read$,
    case
      when p_first > 0 then format('and h.ctid >= %L::tid', format('(%s,0)', p_first))
      else ''
    end
  )
  using p_from, p_to;
end $$;
