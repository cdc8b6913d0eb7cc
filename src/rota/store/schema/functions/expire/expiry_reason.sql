-- Returns why a job was not started in time: from its row, otherwise from the workers alive then.
create or replace function {schema}.expiry_reason(p_job {schema}.job)
returns text
language sql stable
as $$
  select case
    when p_job.status = 'waiting' and p_job.waits_for like 'job %'
      then format('it waited for %s to end', p_job.waits_for)
    when p_job.run_at >= p_job.expires_at and p_job.waits_for ~ '^(limit|breaker) '
      then format(
        'it was delayed by %s until %s',
        regexp_replace(p_job.waits_for, '^limit', 'rate limit'),
        said.run_at
      )
    when p_job.run_at >= p_job.expires_at and p_job.status = 'failed'
      then format('it waited for its retry until %s', said.run_at)
    when p_job.run_at >= p_job.expires_at
      then format('it was not due before %s', said.run_at)
    when p_job.status = 'waiting' and p_job.waits_for is not null
      then format('it waited for a free slot of %s', p_job.waits_for)
    when p_job.status = 'waiting'
      then format('it waited for its ordered group %L', p_job.group_key)
        || coalesce(
          (
            select format(', held by job %s (%s)', h.id, h.status)
            from {schema}.job h
            where h.group_key = p_job.group_key
              and h.in_lane
              and h.id <> p_job.id
            order by h.id
            limit 1
          ),
          ''
        )
    when p_job.mismatched_releases is not null
      then format(
        'its payload fits none of the releases that tried: %s',
        array_to_string(p_job.mismatched_releases, ', ')
      )
    when pause.said is not null
      then pause.said
    when live.alive = 0
      then 'no worker was alive'
    when live.know = 0
      then format('no live worker knew its type %L', p_job.job_type)
    when live.serve = 0
      then format('no live worker served its queue %L', p_job.queue)
    when live.could = 0
      then format(
        'no live worker that knew its type %L served its queue %L',
        p_job.job_type, p_job.queue
      )
    when live.running = 0
      then format(
        'none of the live workers that could run it (%s) claimed it in time',
        live.could
      )
    else format(
      'the live workers that could run it (%s) were busy, with %s running jobs',
      live.could, live.running
    )
  end || said.failures
  from
    (
      select
        {schema}.utc_text(p_job.run_at) as run_at,
        case
          when p_job.attempts > 0 and p_job.error_type is not null
            then format(
              '; attempts that failed before: %s; the last error: %s',
              p_job.attempts, p_job.error_type
            )
          else ''
        end as failures
    ) said,
    -- A pause that was in force at the expiry and has not ended since.
    (
      select (
        select format('%s was paused by %s%s', p.what, p.paused_by, ': ' || p.paused_why)
        from (
          select 'everything' as what, i.paused_at, i.paused_until, i.paused_by, i.paused_why
          from {schema}.installation i
          union all
          select
            format('its queue %L', q.name),
            q.paused_at, q.paused_until, q.paused_by, q.paused_why
          from {schema}.queue q
          where q.name = p_job.queue
        ) p
        where p.paused_at <= p_job.expires_at
          and (p.paused_until is null or p.paused_until > p_job.expires_at)
        limit 1
      ) as said
    ) pause,
    (
      select
        count(*) as alive,
        count(*) filter (where p_job.job_type = any (w.job_types)) as know,
        count(*) filter (where w.queues ? p_job.queue) as serve,
        count(*) filter (
          where p_job.job_type = any (w.job_types)
            and w.queues ? p_job.queue
        ) as could,
        coalesce(
          sum(w.running) filter (
            where p_job.job_type = any (w.job_types)
              and w.queues ? p_job.queue
          ),
          0
        ) as running
      from {schema}.worker w
      where w.started_at <= p_job.expires_at
        and {schema}.alive_until(w.heartbeat_at, w.stopped_at) > p_job.expires_at
    ) live
$$;
