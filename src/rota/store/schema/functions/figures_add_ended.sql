-- Adds the rows of one day's history that ended in [p_from, p_to), read from block p_first on (for
-- stats_roll_up).
create or replace function {schema}.figures_add_ended(
  p_name text,
  p_hour timestamptz,
  p_from timestamptz,
  p_to timestamptz,
  p_first bigint
)
returns void
language plpgsql
set jit = off set max_parallel_workers_per_gather = 0 set search_path = pg_catalog, pg_temp
as $$
begin
  execute format($fold$
    with alike as materialized (
      select
        h.job_type, h.queue, h.status,
        h.attempts > 1 as is_late,
        {schema}.time_bucket(h.started_at - h.run_at) as waited,
        {schema}.time_bucket(h.finished_at - h.started_at) as ran,
        count(*) as jobs
      from {schema}.%I h
      where h.finished_at >= $2
        and h.finished_at < $3
        %s
      group by 1, 2, 3, 4, 5, 6
    ),
    counted as (
      select
        a.job_type, a.queue,
        coalesce(sum(a.jobs) filter (where a.status = 'succeeded'), 0) as succeeded,
        coalesce(sum(a.jobs) filter (where a.status = 'succeeded' and a.is_late), 0)
          as succeeded_late,
        coalesce(sum(a.jobs) filter (where a.status = 'cancelled'), 0) as cancelled
      from alike a
      where a.status <> 'dead'
      group by 1, 2
    ),
    waits as (
      select b.job_type, b.queue, jsonb_object_agg(b.waited, b.jobs) as buckets
      from (
        select a.job_type, a.queue, a.waited, sum(a.jobs) as jobs
        from alike a
        where a.status = 'succeeded'
          and a.waited is not null
        group by 1, 2, 3
      ) b
      group by 1, 2
    ),
    runs as (
      select b.job_type, b.queue, jsonb_object_agg(b.ran, b.jobs) as buckets
      from (
        select a.job_type, a.queue, a.ran, sum(a.jobs) as jobs
        from alike a
        where a.status = 'succeeded'
          and a.ran is not null
        group by 1, 2, 3
      ) b
      group by 1, 2
    )
    insert into {schema}.stat_hour as s (
      hour, job_type, queue, succeeded, succeeded_late, cancelled, waited, ran
    )
    select
      $1, c.job_type, c.queue,
      c.succeeded, c.succeeded_late, c.cancelled,
      coalesce(w.buckets, '{}'), coalesce(r.buckets, '{}')
    from counted c
    left join waits w on w.job_type = c.job_type and w.queue = c.queue
    left join runs r on r.job_type = c.job_type and r.queue = c.queue
    on conflict (hour, job_type, queue) do update
    set
      succeeded = s.succeeded + excluded.succeeded,
      succeeded_late = s.succeeded_late + excluded.succeeded_late,
      cancelled = s.cancelled + excluded.cancelled,
      waited = {schema}.buckets_sum(s.waited, excluded.waited),
      ran = {schema}.buckets_sum(s.ran, excluded.ran)
  $fold$,
    p_name,
    case
      when p_first > 0 then format('and h.ctid >= %L::tid', format('(%s,0)', p_first))
      else ''
    end
  )
  using p_hour, p_from, p_to;
end $$;
