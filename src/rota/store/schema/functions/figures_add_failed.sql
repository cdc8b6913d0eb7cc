-- Adds the attempts that failed in [p_from, p_to) (for stats_roll_up). Their queue is that of their
-- job, or of its type if the job is gone.
create or replace function {schema}.figures_add_failed(
  p_hour timestamptz,
  p_from timestamptz,
  p_to timestamptz
)
returns void
language sql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  insert into {schema}.stat_hour as s (hour, job_type, queue, retried, dead)
  select
    p_hour, a.job_type, a.queue,
    count(*) filter (where a.outcome = 'failed'),
    count(*) filter (where a.outcome = 'dead')
  from (
    select
      a.job_type, a.outcome,
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
  ) a
  group by 2, 3
  on conflict (hour, job_type, queue) do update
  set
    retried = s.retried + excluded.retried,
    dead = s.dead + excluded.dead
$$;
