-- Returns the attempts that failed in [p_from, p_to), per hour, type and queue. Their queue is that
-- of their job, or of its type if the job is gone.
create or replace function {schema}.figures_failed(p_from timestamptz, p_to timestamptz)
returns table (
  hour timestamptz,
  job_type text,
  queue text,
  retried bigint,
  dead bigint,
  failed_by_release jsonb
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with alike as materialized (
    select f.hour, f.job_type, f.queue, f.outcome, f.release, count(*) as attempts
    from (
      select
        date_trunc('hour', a.finished_at, 'UTC') as hour,
        a.job_type, a.outcome,
        coalesce(a.release, {schema}.lost_release(a.worker, a.error_type)) as release,
        coalesce(
          (select j.queue from {schema}.job j where j.id = a.job),
          (
            select h.queue
            from {schema}.job_history h
            where h.id = a.job
              and h.finished_at >= a.finished_at
            limit 1
          ),
          (
            select t.queue
            from {schema}.job_type t
            where t.name = {schema}.canonical_type(a.job_type)
          ),
          'default'
        ) as queue
      from {schema}.attempt a
      where a.finished_at >= p_from
        and a.finished_at < p_to
        and a.outcome in ('failed', 'dead')
    ) f
    group by 1, 2, 3, 4, 5
  ),
  counted as (
    select
      a.hour, a.job_type, a.queue,
      coalesce(sum(a.attempts) filter (where a.outcome = 'failed'), 0) as retried,
      coalesce(sum(a.attempts) filter (where a.outcome = 'dead'), 0) as dead
    from alike a
    group by 1, 2, 3
  ),
  released as (
    select b.hour, b.job_type, b.queue, jsonb_object_agg(b.release, b.attempts) as attempts
    from (
      select a.hour, a.job_type, a.queue, a.release, sum(a.attempts) as attempts
      from alike a
      where a.release is not null
      group by 1, 2, 3, 4
    ) b
    group by 1, 2, 3
  )
  select
    c.hour, c.job_type, c.queue,
    c.retried::bigint, c.dead::bigint,
    {schema}.releases_sum('{}'::jsonb, r.attempts)
  from counted c
  left join released r on r.hour = c.hour and r.job_type = c.job_type and r.queue = c.queue
$$;
