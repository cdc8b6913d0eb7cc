-- Returns what a rule finds now: its subjects, each with a figure and a sentence, the worst 100
-- first. It only reads, and reads a bounded part of each index. SECURITY DEFINER: a monitoring role
-- needs no right to read payloads. The function shows only names of types, queues and errors.
-- Locks: none; indexes job_dead, job_ready and attempt_finished, a bounded part of each.
-- Keeps: M86, the cost does not grow with the number of jobs.
create or replace function {schema}.alert_matches(p_rule text)
returns table (subject text, value float8, message text)
language plpgsql stable security definer
set enable_seqscan = off set enable_bitmapscan = off set jit = off set intervalstyle = 'postgres'
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_rule {schema}.alert_rule;
  v_minutes float8;
  v_count bigint;
  v_span float8;
  v_usual float8;
  v_now timestamptz := {schema}.clock();
  v_types text[];
  v_resumed timestamptz;
begin
  select r.* into v_rule
  from {schema}.alert_rule r
  where r.name = p_rule;
  v_minutes := extract(epoch from v_rule.period) / 60;
  if v_rule.kind in ('unclaimed', 'unknown_type', 'no_worker', 'schedule_overdue')
    and {schema}.is_paused()
  then
    return;  -- everything is paused
  end if;
  if v_rule.kind = 'dead' then
    select count(*), array_agg(died.job_type) into v_count, v_types
    from (
      select j.job_type
      from {schema}.job j
      where j.status = 'dead'
        and j.failed_at > v_now - v_rule.period
        and (v_rule.job_type is null or j.job_type = v_rule.job_type)
      order by j.failed_at desc
      limit greatest(v_rule.at_least, 1000)
    ) died;
    if v_count >= v_rule.at_least then
      return query
      select
        '',
        v_count::float8,
        format(
          '%s%s jobs died within %s and wait for a person: %s',
          case when v_count >= greatest(v_rule.at_least, 1000) then 'at least ' else '' end,
          v_count, v_rule.period, {schema}.alert_names(v_types)
        );
    end if;
  elsif v_rule.kind = 'same_error' then
    return query
    select
      coalesce(one.error_type, '?'),
      count(*)::float8,
      format(
        '%s different jobs failed with %s within %s: %s',
        count(*), coalesce(one.error_type, '?'), v_rule.period,
        {schema}.alert_names(array_agg(one.job_type))
      )
    from (
      select distinct f.error_type, f.job_type, f.job
      from {schema}.alert_failures(v_now - v_rule.period, v_now) f
      where v_rule.job_type is null
        or f.job_type = v_rule.job_type
    ) one
    group by one.error_type
    having count(*) >= v_rule.at_least
    order by 2 desc
    limit 100;
  elsif v_rule.kind = 'failure_rate' then
    select
      count(*),
      array_agg(f.job_type),
      extract(epoch from v_now - min(f.finished_at)) / 60
    into v_count, v_types, v_span
    from {schema}.alert_failures(v_now - v_rule.period, v_now) f
    where v_rule.job_type is null
      or f.job_type = v_rule.job_type;
    if v_count >= v_rule.at_least then
      if v_count >= 10000 then
        -- More attempts failed than were read.
        v_minutes := least(v_minutes, greatest(v_span, 1.0 / 60));
      end if;
      select
        count(*) / greatest(
          60,
          extract(epoch from v_now - v_rule.period - min(f.finished_at)) / 60
        )
      into v_usual
      from {schema}.alert_failures(
        v_now - v_rule.period - interval '1 day',
        v_now - v_rule.period
      ) f
      where v_rule.job_type is null
        or f.job_type = v_rule.job_type;
      if v_count / v_minutes >= v_rule.factor * coalesce(v_usual, 0) then
        return query
        select
          '',
          v_count / v_minutes,
          format(
            '%s failures a minute over %s, usually %s: %s',
            round((v_count / v_minutes)::numeric, 1), v_rule.period,
            round(coalesce(v_usual, 0)::numeric, 2), {schema}.alert_names(v_types)
          );
      end if;
    end if;
  elsif v_rule.kind = 'unclaimed' then
    return query
    select
      d.queue,
      extract(epoch from v_now - min(d.oldest))::float8,
      format(
        'the oldest due job of queue %s has been waiting since %s, though workers serve it',
        d.queue,
        to_char(min(d.oldest) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"')
      )
    from {schema}.alert_due(v_rule.queue, v_rule.period) d
    where d.known
      and d.served
      and d.tried
      and (v_rule.job_type is null or d.job_type = v_rule.job_type)
    group by d.queue
    having sum(d.jobs) >= v_rule.at_least
    order by 2 desc
    limit 100;
  elsif v_rule.kind = 'unknown_type' then
    return query
    select
      d.job_type,
      sum(d.jobs)::float8,
      format(
        'no worker seen within %s knows type %s, and jobs of it have been due since %s',
        v_rule.period, d.job_type,
        to_char(min(d.oldest) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"')
      )
    from {schema}.alert_due(v_rule.queue, v_rule.period) d
    where not d.known
      and d.served
      and (v_rule.job_type is null or d.job_type = v_rule.job_type)
    group by d.job_type
    having sum(d.jobs) >= v_rule.at_least
    order by 2 desc
    limit 100;
  elsif v_rule.kind = 'no_worker' then
    return query
    select
      d.queue,
      extract(epoch from v_now - min(d.oldest))::float8,
      format(
        'no worker seen within %s serves queue %s, and jobs in it have been due since %s',
        v_rule.period, d.queue,
        to_char(min(d.oldest) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"')
      )
    from {schema}.alert_due(v_rule.queue, v_rule.period) d
    where not d.served
      and (v_rule.job_type is null or d.job_type = v_rule.job_type)
    group by d.queue
    having sum(d.jobs) >= v_rule.at_least
    order by 2 desc
    limit 100;
  elsif v_rule.kind = 'schedule_overdue' then
    -- A schedule that Rota paused, because it cannot run as it is, also counts as late. Not late:
    -- a schedule that a person paused; one that a worker which has just started is about to fire,
    -- after a time without workers; one that has been waiting since a pause of everything ended.
    select max(a.at) into v_resumed
    from {schema}.alert_resumed(v_rule.period) a
    where a.queue is null;
    return query
    select
      late.name,
      extract(epoch from v_now - late.at)::float8,
      case
        when late.paused
          then format('schedule %s is paused by Rota: %s', late.name, late.why)
        else format(
          'schedule %s was due at %s%s',
          late.name,
          to_char(late.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"'),
          ': ' || late.last_error
        )
      end
    from (
      select
        s.name,
        s.paused_at is not null as paused,
        coalesce(s.paused_at, s.next_run_at, s.since) as at,
        s.paused_why as why,
        s.last_error
      from {schema}.schedule s
      where s.cron is not null
        and s.disabled_at is null
        and (s.paused_at is null or s.refused)
    ) late
    where greatest(late.at, case when not late.paused then v_resumed end) < v_now - v_rule.period
      and (
        late.paused
        or v_now - least(v_rule.period, interval '1 minute') > (
          select coalesce(min(w.started_at), '-infinity')
          from {schema}.worker w
          where coalesce(w.stopped_at, w.heartbeat_at) > v_now - v_rule.period
        )
      )
    order by 2 desc
    limit 100;
  end if;
end $$;
