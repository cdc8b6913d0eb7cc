-- Why: what `rota doctor` and `rota top` read. Whoever looks at a queue must not load it: they count so far and no further, read the front of an
-- index and never all of it, and take figures that workers write along with their sign of life anyway.
-- Oldest release that can live with this: 0.1.0.

-- What each worker has counted since it began. Written with its sign of life, so that rates cost no count and a rejected write is seen afterwards.
alter table rota.worker
  add column slots int,                             -- jobs at once in all; NULL: it did not say
  add column succeeded bigint not null default 0,   -- attempts that it brought to that end
  add column failed bigint not null default 0,
  add column dead bigint not null default 0,
  add column rejected bigint not null default 0;    -- what it had to write for jobs that it had lost by then

-- The first p_limit jobs that wait in each queue and priority, in the order in which they are claimed: due ones and, behind them, those to come.
create function rota.ready_heads(p_limit int) returns table (queue text, priority smallint, job_type text, run_at timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  select r.queue, r.priority, head.job_type, head.run_at
  from rota.ready_queues() r(queue, priority)
  cross join lateral (
    select b.job_type, b.run_at from rota.job b where b.queue = r.queue and b.priority = r.priority and b.status in ('queued', 'failed')
    order by b.run_at, b.id limit p_limit) head
$$;

-- At most p_limit of the jobs that run, those first whose leases end first.
create function rota.running_jobs(p_limit int)
returns table (id bigint, job_type text, queue text, worker text, attempts int, started_at timestamptz, locked_until timestamptz, progress jsonb)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  select j.id, j.job_type, j.queue, j.locked_by, j.attempts, j.started_at, j.locked_until, j.progress
  from rota.job j where j.status = 'running' order by j.locked_until limit p_limit
$$;

-- How many jobs are dead, counted to p_limit, and since when the longest of them.
create function rota.dead_jobs(p_limit int) returns table (jobs bigint, oldest_at timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  select count(*), min(d.failed_at) from (select j.failed_at from rota.job j where j.status = 'dead' order by j.failed_at limit p_limit) d
$$;

-- Schedules that do not fire: whose tick is more than p_late over, or not planned for as long, and those that Rota has paused itself because they cannot be
-- run as they are, with why. None of those that a person has paused, or that are disabled; none at all while everything is paused. The latest first.
create function rota.schedules_overdue(p_late interval, p_limit int) returns table (name text, due_at timestamptz, stopped_why text)
language sql stable set search_path = rota, pg_temp as $$
  select s.name, coalesce(s.next_run_at, s.since), case when s.paused_at is not null then coalesce(s.paused_why, '') end
  from rota.schedule s
  where s.cron is not null and s.disabled_at is null and not rota.is_paused()
    and case when s.paused_at is null then coalesce(s.next_run_at, s.since) < rota.clock() - p_late else s.refused end
  order by 2, 1 limit p_limit
$$;

-- What keeps everything from being claimed, as JSON; NULL: nothing does.
create function rota.site_paused() returns jsonb language sql stable set search_path = rota, pg_temp as $$
  select jsonb_build_object('paused_at', s.paused_at, 'paused_until', s.paused_until, 'paused_by', s.paused_by, 'paused_why', s.paused_why,
    'copied', coalesce(s.copied, seen.copied))
  from rota.site s cross join (select rota.copy_seen() as copied) seen where rota.is_paused() or seen.copied is not null
$$;

-- The queues and priorities that have jobs ready or to come, at most p_queues of them, each counted to p_limit.
create function rota.ready_counts(p_queues int, p_limit int) returns table (queue text, priority smallint, due bigint, later bigint, oldest_at timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  select r.queue, r.priority,
    (select count(*) from (select from rota.job j where j.queue = r.queue and j.priority = r.priority and j.status in ('queued', 'failed')
                           and j.run_at <= rota.clock() limit p_limit) counted),
    (select count(*) from (select from rota.job j where j.queue = r.queue and j.priority = r.priority and j.status in ('queued', 'failed')
                           and j.run_at > rota.clock() limit p_limit) counted),
    (select j.run_at from rota.job j where j.queue = r.queue and j.priority = r.priority and j.status in ('queued', 'failed') order by j.run_at limit 1)
  from (select q.queue, q.priority from rota.ready_queues() q(queue, priority) limit p_queues) r
$$;

-- The last p_limit attempts of the last day that did not succeed, the newest first.
create function rota.attempts_latest(p_limit int)
returns table (job bigint, job_type text, attempt int, outcome text, error_type text, message text, finished_at timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  select a.job, a.job_type, a.attempt, a.outcome, a.error_type, a.message, a.finished_at
  from rota.attempt a where a.finished_at > rota.clock() - interval '1 day' order by a.finished_at desc limit p_limit
$$;
