-- Why: people look for jobs and ask how things went, beside millions of rows of history, without an index that every finish would pay for. A search reads
-- the days that it is about and no others; figures are added up per hour by upkeep, from what is over. Oldest release that can live with this: 0.1.0.

-- Errors are found through the attempts that ended so; only a failed attempt pays for it.
create index attempt_finished on rota.attempt (finished_at);
-- So that the few that failed or wait for others are counted without a look at all that are queued; only those pay for it.
create index job_put_off on rota.job (status) where status in ('failed', 'waiting');

-- Finds jobs, the newest (by id) first. NULL is any. What is over is found by when it ended: from p_since, which is a day before p_until unless given; a dead
-- job by when it died, where p_since or p_until is given; what is still to be done belongs to now. p_error_type and p_error (a part of its text, in
-- any case) mean an attempt that failed in that time, or the last error of a job that is not over. A key is looked up at any time. With p_ids no time counts.
-- Put together from what is asked, so that each search is planned for itself: the days that do not count are left out, and the planner knows the values.
create function rota.jobs_find(p_ids bigint[], p_status text, p_job_type text, p_queue text, p_key text, p_error_type text, p_error text,
  p_since timestamptz, p_until timestamptz, p_before bigint, p_limit int)
returns setof rota.jobs language plpgsql stable set jit = off set max_parallel_workers_per_gather = 0 set standard_conforming_strings = on
set search_path = rota, pg_temp as $$
declare
  v_since timestamptz := coalesce(p_since, coalesce(p_until, rota.clock()) - interval '1 day');
  v_has_error boolean := p_error_type is not null or p_error is not null;
  v_like text := '%' || replace(replace(replace(p_error, '\', '\\'), '%', '\%'), '_', '\_') || '%';
  v_same text := concat(
    case when p_status is not null then ' and v.status = $2' end,
    case when p_job_type is not null then ' and v.job_type = $3' end,
    case when p_queue is not null then ' and v.queue = $4' end,
    case when p_key is not null then ' and v.idempotency_key = $5' end,
    case when p_before is not null then ' and v.id < $10' end);
  v_last text := ' order by v.id desc limit $11)';
  v_parts text[] := '{}';
begin
  if p_ids is not null then
    v_parts := array['(select v.* from rota.jobs v where v.id = any ($1)' || v_same || v_last];
  else
    if p_status is null or p_status not in ('succeeded', 'cancelled') then
      v_parts := v_parts || concat('(select v.* from rota.jobs v where v.finished_at is null', v_same,
        case when p_error_type is not null then ' and v.error_type = $6' end,
        case when p_error is not null then ' and v.last_error ilike $7' end,
        case when p_until <= rota.clock() then ' and v.status = ''dead''' end,
        case when p_status = 'dead' and p_since is not null then ' and v.failed_at >= $8'
          when p_since is not null then ' and (v.status <> ''dead'' or v.failed_at >= $8)' end,
        case when p_until is not null then ' and (v.status <> ''dead'' or v.failed_at < $9)' end, v_last);
    end if;
    if v_has_error then
      v_parts := v_parts || concat('(select v.* from (select a.job, min(a.finished_at) as failed_at from rota.attempt a where a.finished_at >= $8',
        case when p_until is not null then ' and a.finished_at < $9' end,
        case when p_error_type is not null then ' and a.error_type = $6' end,
        case when p_error is not null then ' and a.message ilike $7' end,
        case when p_job_type is not null then ' and a.job_type = $3' end,
        case when p_before is not null then ' and a.job < $10' end,
        ' group by a.job order by a.job desc) a cross join lateral (select v.* from rota.jobs v where v.id = a.job and v.finished_at is null', v_same,
        ' union all select v.* from rota.jobs v where v.id = a.job and v.finished_at >= a.failed_at', v_same,
        case when p_status = 'dead' then ' and v.resolution is null' end, ' limit 1) v order by a.job desc limit $11)');
    elsif p_status is null or p_status in ('succeeded', 'cancelled') then
      v_parts := v_parts || concat('(select v.* from rota.jobs v where v.finished_at >= $8',
        case when p_until is not null then ' and v.finished_at < $9' end, v_same, v_last);
    end if;
    if p_key is not null and not v_has_error then
      v_parts := v_parts || concat('(select v.* from rota.jobs v where v.id = any (array(select rota.key_jobs($3, $5)))', v_same,
        case when p_status = 'dead' then ' and v.resolution is null' end, v_last);
    end if;
  end if;
  return query execute format('select distinct on (v.id) v.* from (%s) v order by v.id desc limit $11', array_to_string(v_parts, ' union all '))
    using p_ids, p_status, p_job_type, p_queue, p_key, p_error_type, v_like, v_since, p_until, p_before, p_limit;
end $$;

-- The jobs that hold a key, of one type or of all that ever had one: one index descent for each type.
-- SECURITY DEFINER: who may read the view need have no right on the keys; it tells ids, and the view the rest.
create function rota.key_jobs(p_job_type text, p_key text) returns setof bigint
language sql stable security definer set enable_seqscan = off set enable_bitmapscan = off set search_path = rota, pg_temp as $$
  with recursive kind(name) as (
    (select i.job_type from rota.idempotency i order by i.job_type limit 1)
    union all
    select (select i.job_type from rota.idempotency i where i.job_type > k.name order by i.job_type limit 1) from kind k where k.name is not null)
  select i.job from rota.idempotency i
  where p_job_type is not null and i.job_type in (p_job_type, rota.canonical_type(p_job_type)) and i.key = p_key
  union all
  select i.job from kind k join rota.idempotency i on i.job_type = k.name and i.key = p_key where p_job_type is null
$$;

-- What ended per hour, type and queue. Times are counted in buckets, {"bucket": jobs}: bucket b holds times up to 1.2 to the b milliseconds, and is told as its
-- middle, so that a figure from it is off by less than 10 %.
create table rota.stat_hour (
  hour timestamptz not null,
  job_type text not null,
  queue text not null,
  succeeded bigint not null default 0,
  succeeded_late bigint not null default 0,      -- of those: with an attempt that failed before
  retried bigint not null default 0,             -- attempts that failed and were to be tried again
  dead bigint not null default 0,
  cancelled bigint not null default 0,
  waited jsonb not null default '{}',            -- of those that succeeded: from run_at until the handler began
  ran jsonb not null default '{}',               -- … and how long it ran
  primary key (hour, job_type, queue)
);

-- How far the figures go; one row. To count what is in history once more from some hour on: set folded_to back to it.
create table rota.stat_fold (
  id int primary key default 1 check (id = 1),
  folded_to timestamptz not null
);
insert into rota.stat_fold (folded_to) values (date_trunc('hour', rota.clock(), 'UTC'));

alter table rota.retention drop constraint retention_what_check;
alter table rota.retention add constraint retention_what_check check (what in ('history', 'attempts', 'dead', 'actions', 'figures'));
insert into rota.retention (what, keep) values ('figures', '400 days');

create function rota.time_bucket(p_took interval) returns int language sql immutable parallel safe as
  'select case when p_took is not null then greatest(0, least(130, ceil(ln(greatest(extract(epoch from p_took)::float8, 0.001) * 1000) / ln(1.2::float8))))::int end';

create function rota.buckets_sum(p_one jsonb, p_other jsonb) returns jsonb language sql immutable parallel safe as $$
  select coalesce(jsonb_object_agg(b.key, b.jobs), '{}')
  from (select e.key, sum(e.value::bigint) as jobs from (select * from jsonb_each_text(p_one) union all select * from jsonb_each_text(p_other)) e group by e.key) b
$$;

-- The first block of a day of history that was begun after p_at, less one: rows are appended, so the first row of a block says when that was begun. Finds it
-- in a dozen looks, without an index.
create function rota.history_block(p_name text, p_at timestamptz, p_blocks bigint) returns bigint language plpgsql stable set search_path = rota, pg_temp as $$
declare v_low bigint := 0; v_high bigint := p_blocks; v_middle bigint; v_at timestamptz; begin
  while v_low < v_high loop
    v_middle := (v_low + v_high) / 2;
    execute format('select h.finished_at from rota.%I h where h.ctid >= %L::tid and h.ctid < %L::tid limit 1', p_name, format('(%s,0)', v_middle),
      format('(%s,0)', v_middle + 16)) into v_at;
    if v_at < p_at then
      v_low := v_middle + 1;
    else
      v_high := v_middle;
    end if;
  end loop;
  return greatest(0, v_low - 1);
end $$;

-- Adds what ended in the minutes that are closed to the figures, up to an hour of it. Returns whether there is more. Minutes are closed when they are two
-- minutes old: Rota's own statements end within 30 s. One at a time over all workers, and in one transaction with how far it has come: so each row is
-- counted once, whoever is killed. An hour that is not over is added to from the end of the day's rows; when it is over it is counted anew, from the
-- whole day (up to two gigabytes of it): a row may also have gone into room that was left in an older block. No index is needed, so no finish pays for one.
-- What history has no more is not counted anew. A clock that was ahead, and was set right, has closed minutes that are yet to come: from the present hour
-- on they are counted again.
create function rota.figures_fold() returns boolean language plpgsql set jit = off set max_parallel_workers_per_gather = 0 set search_path = rota, pg_temp as $$
declare
  v_closed timestamptz := date_trunc('minute', rota.clock() - interval '2 minutes', 'UTC');
  v_from timestamptz;
  v_hour timestamptz;
  v_to timestamptz;
  v_name text;
  v_blocks bigint;
  v_first bigint;
begin
  select f.folded_to into v_from from rota.stat_fold f where f.folded_to < v_closed or f.folded_to > rota.clock() for update skip locked;
  if not found then
    return false;
  end if;
  if v_from > rota.clock() then
    v_from := date_trunc('hour', v_closed, 'UTC');
    delete from rota.stat_hour s where s.hour >= v_from;
    update rota.stat_fold set folded_to = v_from;
  end if;
  v_hour := date_trunc('hour', v_from, 'UTC');
  v_to := least(v_closed, v_hour + interval '1 hour');
  v_name := 'job_history_' || to_char(v_hour at time zone 'UTC', 'YYYYMMDD');
  if to_regclass('rota.' || v_name) is not null then
    v_blocks := pg_relation_size(('rota.' || v_name)::regclass) / current_setting('block_size')::int;
    v_first := rota.history_block(v_name, v_from - interval '1 minute', v_blocks);
  end if;
  if v_blocks is not null or not exists (select from rota.stat_hour s where s.hour = v_hour) then
    if v_to = v_hour + interval '1 hour' then
      v_from := v_hour;
      v_first := least(rota.history_block(v_name, v_from - interval '1 minute', v_blocks), greatest(0, v_blocks - 262144));
      delete from rota.stat_hour s where s.hour = v_hour;
    end if;
    if v_blocks > 0 then
      perform rota.figures_add_ended(v_name, v_hour, v_from, v_to, v_first);
    end if;
    perform rota.figures_add_failed(v_hour, v_from, v_to);
  end if;
  update rota.stat_fold set folded_to = v_to;
  return v_to < v_closed;
end $$;

-- Of figures_fold: adds the rows of one day's history that ended in [p_from, p_to), from one block on.
create function rota.figures_add_ended(p_name text, p_hour timestamptz, p_from timestamptz, p_to timestamptz, p_first bigint) returns void
language plpgsql set jit = off set max_parallel_workers_per_gather = 0 set search_path = rota, pg_temp as $$
begin
  execute format($fold$
    with alike as materialized (
      select h.job_type, h.queue, h.status, h.attempts > 1 as is_late, rota.time_bucket(h.started_at - h.run_at) as waited,
        rota.time_bucket(h.finished_at - h.started_at) as ran, count(*) as jobs
      from rota.%I h where h.finished_at >= $2 and h.finished_at < $3 %s
      group by 1, 2, 3, 4, 5, 6),
    counted as (
      select a.job_type, a.queue, coalesce(sum(a.jobs) filter (where a.status = 'succeeded'), 0) as succeeded,
        coalesce(sum(a.jobs) filter (where a.status = 'succeeded' and a.is_late), 0) as succeeded_late,
        coalesce(sum(a.jobs) filter (where a.status = 'cancelled'), 0) as cancelled
      from alike a where a.status <> 'dead' group by 1, 2),
    waits as (
      select b.job_type, b.queue, jsonb_object_agg(b.waited, b.jobs) as buckets
      from (select a.job_type, a.queue, a.waited, sum(a.jobs) as jobs from alike a where a.status = 'succeeded' and a.waited is not null group by 1, 2, 3) b
      group by 1, 2),
    runs as (
      select b.job_type, b.queue, jsonb_object_agg(b.ran, b.jobs) as buckets
      from (select a.job_type, a.queue, a.ran, sum(a.jobs) as jobs from alike a where a.status = 'succeeded' and a.ran is not null group by 1, 2, 3) b
      group by 1, 2)
    insert into rota.stat_hour as s (hour, job_type, queue, succeeded, succeeded_late, cancelled, waited, ran)
    select $1, c.job_type, c.queue, c.succeeded, c.succeeded_late, c.cancelled, coalesce(w.buckets, '{}'), coalesce(r.buckets, '{}')
    from counted c left join waits w on w.job_type = c.job_type and w.queue = c.queue left join runs r on r.job_type = c.job_type and r.queue = c.queue
    on conflict (hour, job_type, queue) do update
    set succeeded = s.succeeded + excluded.succeeded, succeeded_late = s.succeeded_late + excluded.succeeded_late, cancelled = s.cancelled + excluded.cancelled,
      waited = rota.buckets_sum(s.waited, excluded.waited), ran = rota.buckets_sum(s.ran, excluded.ran)
  $fold$, p_name, case when p_first > 0 then format('and h.ctid >= %L::tid', format('(%s,0)', p_first)) else '' end)
  using p_hour, p_from, p_to;
end $$;

-- Of figures_fold: adds the attempts that failed in [p_from, p_to). Their queue is that of their job, or of its type where the job is gone.
create function rota.figures_add_failed(p_hour timestamptz, p_from timestamptz, p_to timestamptz) returns void
language sql set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  insert into rota.stat_hour as s (hour, job_type, queue, retried, dead)
  select p_hour, a.job_type, a.queue, count(*) filter (where a.outcome = 'failed'), count(*) filter (where a.outcome = 'dead')
  from (
    select a.job_type, a.outcome, coalesce((select j.queue from rota.job j where j.id = a.job),
      (select h.queue from rota.job_history h where h.id = a.job and h.finished_at >= a.finished_at limit 1),
      (select t.queue from rota.job_type t where t.name = rota.canonical_type(a.job_type)), 'default') as queue
    from rota.attempt a where a.finished_at >= p_from and a.finished_at < p_to and a.outcome in ('failed', 'dead')) a
  group by 2, 3
  on conflict (hour, job_type, queue) do update set retried = s.retried + excluded.retried, dead = s.dead + excluded.dead
$$;

-- Forgets figures that are as old as the setting. Returns how many rows.
create function rota.figures_forget(p_limit int) returns int language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = rota, pg_temp as $$
declare v_count int; begin
  with old as materialized (
    select s.hour, s.job_type, s.queue from rota.stat_hour s
    where s.hour < rota.clock() - (select r.keep from rota.retention r where r.what = 'figures')
    order by s.hour, s.job_type, s.queue limit p_limit for update skip locked)
  delete from rota.stat_hour s using old o where s.hour = o.hour and s.job_type = o.job_type and s.queue = o.queue;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
