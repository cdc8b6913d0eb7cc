-- Why: a job past its expires_at is dead, and says what held it up, also when no worker ever asks for it: its type is unknown, nobody serves its queue,
-- or it waits for a retry that would come too late. Oldest release that can live with this: 0.1.0.

-- Only jobs that have an expiry and wait are in it: the others pay nothing. With the id, so that a pass over many that expire at once can go on from
-- where its last batch ended, and does not walk over the entries of those it has just taken.
create index job_expires on rota.job (expires_at, id) where expires_at is not null and status in ('queued', 'failed', 'waiting');

-- What kept a waiting job from being started before expires_at, in words: by its own facts, else by the workers that were alive at that moment.
create function rota.held_up(p_job rota.job) returns text language sql stable set search_path = rota, pg_temp as $$
  select case
    when p_job.run_at >= p_job.expires_at and p_job.status = 'failed' then format('it waited for its retry until %s', said.run_at) || said.failures
    when p_job.run_at >= p_job.expires_at then format('it was not due before %s', said.run_at)
    when p_job.status = 'waiting' then 'it waited for another job to end'
    when p_job.misfits is not null then format('its payload fits none of the releases that tried: %s', array_to_string(p_job.misfits, ', '))
    when pause.said is not null then pause.said || said.failures
    when crew.alive = 0 then 'no worker was alive' || said.failures
    when crew.know = 0 then format('no live worker knew its type %L', p_job.job_type) || said.failures
    when crew.serve = 0 then format('no live worker served its queue %L', p_job.queue) || said.failures
    when crew.could = 0 then format('no live worker that knew its type %L served its queue %L', p_job.job_type, p_job.queue) || said.failures
    when crew.running = 0 then format('none of the live workers that could run it (%s) came to it in time', crew.could) || said.failures
    else format('the live workers that could run it (%s) were busy: jobs running there: %s', crew.could, crew.running) || said.failures end
  from (select to_char(p_job.run_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"') as run_at,
          case when p_job.status = 'failed' then format('; attempts that failed before: %s, the last with %s', p_job.attempts, p_job.error_type) else '' end
            as failures) said,
    -- What is paused still, and was when the expiry came.
    (select (
       select format('%s was paused by %s%s', p.what, p.paused_by, ': ' || p.paused_why)
       from (select 'everything' as what, s.paused_at, s.paused_until, s.paused_by, s.paused_why from rota.site s
             union all
             select format('its queue %L', q.name), q.paused_at, q.paused_until, q.paused_by, q.paused_why from rota.queue q where q.name = p_job.queue) p
       where p.paused_at <= p_job.expires_at and (p.paused_until is null or p.paused_until > p_job.expires_at) limit 1) as said) pause,
    (select count(*) as alive, count(*) filter (where p_job.job_type = any (w.job_types)) as know, count(*) filter (where w.queues ? p_job.queue) as serve,
       count(*) filter (where p_job.job_type = any (w.job_types) and w.queues ? p_job.queue) as could,
       coalesce(sum(w.running) filter (where p_job.job_type = any (w.job_types) and w.queues ? p_job.queue), 0) as running
     from rota.worker w
     where w.started_at <= p_job.expires_at and coalesce(w.stopped_at, w.heartbeat_at + interval '1 minute') > p_job.expires_at) crew
$$;

-- Ends waiting jobs whose expires_at has passed: dead, uncharged, with what held them up. Reads the index of expiries from (p_after, p_after_id) on, so
-- that it does not walk over the entries of all jobs that ever had one. Nobody holds such a job, so no claim has to be named and the fence stays.
-- p_only: of these jobs only; NULL: of all.
create function rota.job_expire(p_worker text, p_after timestamptz, p_after_id bigint, p_limit int, p_only bigint[] default null)
returns table (id bigint, job_type text, claims int, attempt int, expires_at timestamptz, message text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_mergejoin = off set enable_hashjoin = off
set jit = off set plan_cache_mode = force_generic_plan set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  perform rota.wait_briefly(p_only);
  return query
  with late as materialized (
    select j as job, j.id from rota.job j
    where j.expires_at is not null and j.status in ('queued', 'failed', 'waiting')
      and (j.expires_at, j.id) > (p_after, p_after_id) and j.expires_at <= rota.clock()
      and (p_only is null or j.id = any (p_only))
    order by j.expires_at, j.id limit p_limit for update skip locked),
  decided as materialized (
    select l.id, (l.job).started_at, format('not started%s before expires_at (%s): %s', case when (l.job).status = 'failed' then ' again' else '' end,
      to_char((l.job).expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"'), rota.held_up(l.job)) as message
    from late l),
  expired as (
    update rota.job j
    set status = 'dead', last_error = d.message, error_type = 'Expired', response_code = null, verdict = 'fatal', verdict_rule = 'expired',
      failed_at = rota.clock(), updated_at = rota.clock()
    from decided d where j.id = d.id
    returning j.id, j.job_type, j.claims, j.attempts + 1 as attempt, j.expires_at, d.message),
  recorded as (
    -- The attempt that did not come about, as one whose claim came too late is recorded.
    insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome, error_type, message, verdict, verdict_rule)
    select e.id, e.claims, e.attempt, e.job_type, p_worker, rota.clock(), 'dead', 'Expired', e.message, 'fatal', 'expired' from expired e)
  select e.id, e.job_type, e.claims, e.attempt, e.expires_at, e.message from expired e;
end $$;
