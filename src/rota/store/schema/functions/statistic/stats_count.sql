-- Counts what ended in [p_from, p_to), a part of one hour, into the figures of that hour: anew if
-- p_from is its beginning, else it adds. Failed attempts count in the queue of their job, or of
-- their type if the job is gone. It keeps the 20 most frequent releases, so that a row stays small.
-- An hour that history no longer has stays as it was counted.
-- It reads the end of a day of history without an index, for which each finish would pay: rows are
-- appended, so the first row of a block shows when the block was begun. For a whole hour it reads
-- at least two gigabytes, because a row may also stand in free space of an older block.
-- Locks: none; indexes attempt_finished, job_pkey and job_history_id; the end of one day's history.
create or replace function {schema}.stats_count(p_from timestamptz, p_to timestamptz)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_hour timestamptz := date_trunc('hour', p_from, 'UTC');
  v_day timestamptz := date_trunc('day', p_from, 'UTC');
  v_blocks bigint := pg_relation_size(
    to_regclass('{schema}.job_history_' || to_char(v_day at time zone 'UTC', 'YYYYMMDD'))
  ) / current_setting('block_size')::int;        -- of the day; NULL: history does not have it
  v_read bigint := case when p_to - p_from = interval '1 hour' then 262144 else 16 end;
  v_first bigint;                                -- of the blocks to read
begin
  if v_blocks is null and exists (select from {schema}.stat_hour s where s.hour = v_hour) then
    return;
  end if;
  loop
    v_first := greatest(0, v_blocks - v_read);
    exit when v_first = 0 or (
      select h.finished_at
      from {schema}.job_history h
      where h.finished_at >= v_day
        and h.finished_at < v_day + interval '24 hours'
        and h.ctid >= format('(%s,0)', v_first)::tid
        and h.ctid < format('(%s,0)', v_first + 16)::tid
      limit 1
    ) < p_from - interval '1 minute';
    v_read := v_read * 2;
  end loop;
  if p_from = v_hour then
    delete from {schema}.stat_hour s where s.hour = v_hour;
  end if;
  insert into {schema}.stat_hour as s (
    hour, job_type, queue,
    succeeded, succeeded_late, retried, dead, cancelled,
    failed_by_release, waited, ran
  )
  with alike as materialized (
    select
      h.job_type, h.queue, h.status as outcome,
      h.attempts > 1 as is_late,
      {schema}.time_bucket(h.started_at - h.run_at) as waited,
      {schema}.time_bucket(h.finished_at - h.started_at) as ran,
      null as release,
      count(*) as jobs
    from {schema}.job_history h
    where h.finished_at >= p_from
      and h.finished_at < p_to
      and h.ctid >= format('(%s,0)', v_first)::tid
      and h.status <> 'dead'
    group by 1, 2, 3, 4, 5, 6
    union all
    select f.job_type, f.queue, f.outcome, false, null, null, f.release, count(*)
    from (
      select
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
    group by f.job_type, f.queue, f.outcome, f.release
  ),
  counted as (
    select
      a.job_type, a.queue, figure.name, figure.key,
      sum(a.jobs) as jobs,
      row_number() over (
        partition by a.job_type, a.queue, figure.name
        order by sum(a.jobs) desc, figure.key
      ) as place
    from alike a
    cross join lateral (
      values
        (true, a.outcome, ''),
        (a.outcome = 'succeeded' and a.is_late, 'late', ''),
        (a.outcome = 'succeeded', 'waited', a.waited::text),
        (a.outcome = 'succeeded', 'ran', a.ran::text),
        (true, 'release', a.release)
    ) figure(counts, name, key)
    where figure.counts
      and figure.key is not null
    group by a.job_type, a.queue, figure.name, figure.key
  )
  select
    v_hour, c.job_type, c.queue,
    coalesce(sum(c.jobs) filter (where c.name = 'succeeded'), 0),
    coalesce(sum(c.jobs) filter (where c.name = 'late'), 0),
    coalesce(sum(c.jobs) filter (where c.name = 'failed'), 0),
    coalesce(sum(c.jobs) filter (where c.name = 'dead'), 0),
    coalesce(sum(c.jobs) filter (where c.name = 'cancelled'), 0),
    coalesce(
      jsonb_object_agg(c.key, c.jobs) filter (where c.name = 'release' and c.place <= 20), '{}'
    ),
    coalesce(jsonb_object_agg(c.key, c.jobs) filter (where c.name = 'waited'), '{}'),
    coalesce(jsonb_object_agg(c.key, c.jobs) filter (where c.name = 'ran'), '{}')
  from counted c
  group by c.job_type, c.queue
  on conflict (hour, job_type, queue) do update
  set
    succeeded = s.succeeded + excluded.succeeded,
    succeeded_late = s.succeeded_late + excluded.succeeded_late,
    retried = s.retried + excluded.retried,
    dead = s.dead + excluded.dead,
    cancelled = s.cancelled + excluded.cancelled,
    failed_by_release = {schema}.buckets_sum(s.failed_by_release, excluded.failed_by_release),
    waited = {schema}.buckets_sum(s.waited, excluded.waited),
    ran = {schema}.buckets_sum(s.ran, excluded.ran);
end $$;
