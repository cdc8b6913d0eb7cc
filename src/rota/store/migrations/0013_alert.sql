-- Why: nobody looks at a queue all day. What is to be noticed is data, so that it can be changed with plain SQL; that something was noticed is data
-- too, so that over a whole fleet each thing is said once. Oldest release that can live with this: 0.1.0.

-- What is looked for. at_least, factor and period mean what the kind says:
--   dead              at_least jobs died within period, and nobody has resolved them
--   same_error        attempts of at_least different jobs failed with the same error type within period
--   failure_rate      at_least attempts failed within period, and factor times as many a minute as usual over the day before it
--   unclaimed         a job has been due for longer than period, though workers serve its queue and know its type, and have had time to take it
--   unknown_type      the same of a type that no worker seen within period knows
--   no_worker         the same in a queue that no worker seen within period serves
--   schedule_overdue  a schedule's next run is later than it was to be by more than period
create table rota.alert_rule (
  name text primary key,
  kind text not null constraint alert_rule_kind check (kind in (
    'dead', 'same_error', 'failure_rate', 'unclaimed', 'unknown_type', 'no_worker', 'schedule_overdue')),
  at_least int not null default 1 check (at_least between 1 and 10000),
  factor float8 check (factor > 1 and factor <= 1000000),
  period interval not null check (period between interval '1 second' and interval '7 days'),
  queue text check (length(queue) between 1 and 100),        -- only of this queue; unclaimed, unknown_type, no_worker
  job_type text check (length(job_type) between 1 and 200),  -- only of this type; all but schedule_overdue
  severity text not null default 'critical' check (severity in ('warning', 'critical')),
  repeat_after interval default '4 hours' check (repeat_after between interval '1 minute' and interval '3650 days'),  -- NULL: it is not repeated
  tell_job text check (length(tell_job) between 1 and 200),  -- also enqueue a job of this type, with the alert as its payload
  enabled boolean not null default true,
  due_at timestamptz,                            -- not to be evaluated before; NULL: at once. Written by whoever evaluates
  -- It is the label of a figure, the subject of a mail and an argument of `rota check --rule`: one has to be able to see and to type it.
  constraint alert_rule_name_is_one_line_and_not_blank check (
    length(name) between 1 and 100
    and name !~ '^[[:space:]\u00a0\u2000-\u200b\u3000]|[[:space:]\u00a0\u2000-\u200b\u3000]$'
    and name !~ '[[:cntrl:]\u0080-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]'),
  -- What a kind does not go by is refused: whoever gives it believes that the rule looks at less than it does.
  constraint alert_rule_rate_has_factor check ((kind = 'failure_rate') = (factor is not null)),
  constraint alert_rule_queue_counts check (queue is null or kind in ('unclaimed', 'unknown_type', 'no_worker')),
  constraint alert_rule_schedule_has_no_jobs check (kind <> 'schedule_overdue' or job_type is null and at_least = 1)
);
insert into rota.alert_rule (name, kind, at_least, factor, period, severity) values
  ('dead jobs', 'dead', 10, null, '1 hour', 'critical'),
  ('same error', 'same_error', 20, null, '1 hour', 'warning'),
  ('failure rate', 'failure_rate', 30, 5, '5 minutes', 'warning'),
  ('unclaimed jobs', 'unclaimed', 1, null, '10 minutes', 'critical'),
  ('unknown type', 'unknown_type', 1, null, '10 minutes', 'critical'),
  ('no worker', 'no_worker', 1, null, '10 minutes', 'critical'),
  ('schedule overdue', 'schedule_overdue', 1, null, '10 minutes', 'critical');

-- What a rule has found: a row for each subject, from when it fires on. `told` counts what was told of it and only grows: who tells names the number
-- that it saw, so over a fleet one does.
create table rota.alert (
  rule text not null references rota.alert_rule on update cascade on delete cascade,
  subject text not null,                         -- an error type, a queue, a job type, a schedule; '': the rule has but one
  state text not null check (state in ('fires', 'repeats', 'over')),  -- what was told last
  since timestamptz not null,
  last_told_at timestamptz not null,
  told int not null,
  over_at timestamptz,
  missed int not null default 0,                 -- evaluations in a row that did not find it
  value float8 not null,
  message text not null,
  posted int not null default 0,                 -- how many of `told` were posted, or needed no posting any more …
  post_at timestamptz,                           -- … and before when nobody tries the last one again
  primary key (rule, subject)
);

-- What goes on again: by people within p_period, as the newest 10,000 actions tell, and by the hour that they gave. queue NULL: everything.
create function rota.alert_resumed(p_period interval) returns table (queue text, at timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  select a.queue, a.at
  from (select l.* from rota.action l where l.at > rota.clock() - p_period order by l.at desc limit 10000) a
  where a.verb = 'resume' and a.job is null and a.schedule is null
  union all
  select q.name, q.paused_until from rota.queue q where q.paused_at is not null and q.paused_until <= rota.clock()
  union all
  select null, s.paused_until from rota.site s where s.paused_at is not null and s.paused_until <= rota.clock()
$$;

-- The oldest due jobs, 1,000 of each queue and priority at most, by queue and type; of queues that are not paused. known, served: by a worker that was
-- seen within p_period. tried: by one, too, that has been there for a minute, or for p_period: whoever has just begun is about to take what it finds,
-- a drain as well as a worker that comes up again. And it began after the jobs could be taken, or was there for a minute then: one that ended before
-- somebody gave them back, or before a pause was over, has not tried.
create function rota.alert_due(p_queue text, p_period interval)
returns table (queue text, job_type text, jobs bigint, oldest timestamptz, known boolean, served boolean, tried boolean)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
  with seen as materialized (
    select w.job_types, w.queues,
      -- What could be taken before then it has tried; NULL: nothing.
      case when w.started_at < rota.clock() - least(p_period, interval '1 minute')
        then greatest(w.started_at, coalesce(w.stopped_at, w.heartbeat_at) - least(p_period, interval '1 minute')) end as tried_to
    from rota.worker w where coalesce(w.stopped_at, w.heartbeat_at) > rota.clock() - p_period),
  resumed as materialized (select a.queue, a.at from rota.alert_resumed(p_period) a),
  due as materialized (
    select b.queue, b.job_type, count(*) as jobs, min(b.run_at) as oldest,
      greatest(min(b.updated_at), (select max(u.at) from resumed u where u.queue is null or u.queue = b.queue)) as free_at
    from rota.ready_queues() r(queue, priority)
    cross join lateral (
      select r.queue, j.job_type, j.run_at, j.updated_at from rota.job j
      where j.queue = r.queue and j.priority = r.priority and j.status in ('queued', 'failed') and j.run_at < rota.clock() - p_period
      order by j.run_at limit 1000) b
    where (p_queue is null or r.queue = p_queue)
      and not exists (select from rota.queue q where q.name = r.queue
                      and q.paused_at is not null
                      and (q.paused_until is null or q.paused_until > rota.clock()))
    group by b.queue, b.job_type)
  select d.queue, d.job_type, d.jobs, d.oldest,
    exists (select from seen s where d.job_type = any (s.job_types)),
    exists (select from seen s where s.queues ? d.queue),
    exists (select from seen s where d.job_type = any (s.job_types) and s.tried_to > d.free_at)
      and exists (select from seen s where s.queues ? d.queue and s.tried_to > d.free_at)
  from due d
$$;

-- The newest 10,000 attempts that failed since then. A storm of failures is known by these as well as by all.
create function rota.alert_failures(p_since timestamptz, p_until timestamptz) returns table (job bigint, job_type text, error_type text, finished_at timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set search_path = rota, pg_temp as $$
  select newest.job, newest.job_type, newest.error_type, newest.finished_at
  from (select a.job, a.job_type, a.error_type, a.finished_at, a.outcome from rota.attempt a
        where a.finished_at > p_since and a.finished_at <= p_until order by a.finished_at desc limit 10000) newest
  where newest.outcome in ('failed', 'dead')
$$;

-- Names, the most frequent first, as a person reads them.
create function rota.alert_names(p_names text[]) returns text language sql immutable as $$
  select string_agg(named.name || ' (' || named.times || ')', ', ' order by named.times desc, named.name)
    || case when max(named.kinds) > 3 then ', …' else '' end
  from (select n.name, count(*) as times, count(*) over () as kinds from unnest(p_names) n(name) group by n.name order by 2 desc, 1 limit 3) named
$$;

-- What a rule finds now: its subjects, each with a figure and a sentence, the worst 100 first. Reads only, and only so much: a rule costs
-- the same however many jobs there are. SECURITY DEFINER: who watches need not be able to read payloads; it tells the names of types, queues and errors.
create function rota.alert_findings(p_rule text) returns table (subject text, value float8, message text)
language plpgsql stable security definer set enable_seqscan = off set enable_bitmapscan = off set jit = off set intervalstyle = 'postgres'
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_rule rota.alert_rule;
  v_minutes float8;
  v_count bigint;
  v_span float8;
  v_usual float8;
  v_now timestamptz := rota.clock();
  v_types text[];
  v_resumed timestamptz;
begin
  select r.* into v_rule from rota.alert_rule r where r.name = p_rule;
  v_minutes := extract(epoch from v_rule.period) / 60;
  if v_rule.kind in ('unclaimed', 'unknown_type', 'no_worker', 'schedule_overdue') and rota.is_paused() then
    return;  -- nothing is to run
  end if;
  if v_rule.kind = 'dead' then
    select count(*), array_agg(died.job_type) into v_count, v_types
    from (select j.job_type from rota.job j
          where j.status = 'dead' and j.failed_at > v_now - v_rule.period and (v_rule.job_type is null or j.job_type = v_rule.job_type)
          order by j.failed_at desc limit greatest(v_rule.at_least, 1000)) died;
    if v_count >= v_rule.at_least then
      return query select '', v_count::float8, format('%s%s jobs died within %s and wait for a person: %s',
        case when v_count >= greatest(v_rule.at_least, 1000) then 'at least ' else '' end, v_count, v_rule.period, rota.alert_names(v_types));
    end if;
  elsif v_rule.kind = 'same_error' then
    return query
    select coalesce(one.error_type, '?'), count(*)::float8,
      format('%s different jobs failed with %s within %s: %s', count(*), coalesce(one.error_type, '?'), v_rule.period, rota.alert_names(array_agg(one.job_type)))
    from (select distinct f.error_type, f.job_type, f.job from rota.alert_failures(v_now - v_rule.period, v_now) f
          where v_rule.job_type is null or f.job_type = v_rule.job_type) one
    group by one.error_type having count(*) >= v_rule.at_least order by 2 desc limit 100;
  elsif v_rule.kind = 'failure_rate' then
    select count(*), array_agg(f.job_type), extract(epoch from v_now - min(f.finished_at)) / 60 into v_count, v_types, v_span
    from rota.alert_failures(v_now - v_rule.period, v_now) f where v_rule.job_type is null or f.job_type = v_rule.job_type;
    if v_count >= v_rule.at_least then
      if v_count >= 10000 then
        v_minutes := least(v_minutes, greatest(v_span, 1.0 / 60));  -- there were more than were read
      end if;
      select count(*) / greatest(60, extract(epoch from v_now - v_rule.period - min(f.finished_at)) / 60) into v_usual
      from rota.alert_failures(v_now - v_rule.period - interval '1 day', v_now - v_rule.period) f
      where v_rule.job_type is null or f.job_type = v_rule.job_type;
      if v_count / v_minutes >= v_rule.factor * coalesce(v_usual, 0) then
        return query select '', v_count / v_minutes, format('%s failures a minute over %s, usually %s: %s', round((v_count / v_minutes)::numeric, 1),
          v_rule.period, round(coalesce(v_usual, 0)::numeric, 2), rota.alert_names(v_types));
      end if;
    end if;
  elsif v_rule.kind = 'unclaimed' then
    return query
    select d.queue, extract(epoch from v_now - min(d.oldest))::float8,
      format('the oldest due job of queue %s has been waiting since %s, though workers serve it', d.queue,
        to_char(min(d.oldest) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"'))
    from rota.alert_due(v_rule.queue, v_rule.period) d
    where d.known and d.served and d.tried and (v_rule.job_type is null or d.job_type = v_rule.job_type)
    group by d.queue having sum(d.jobs) >= v_rule.at_least order by 2 desc limit 100;
  elsif v_rule.kind = 'unknown_type' then
    return query
    select d.job_type, sum(d.jobs)::float8, format('no worker seen within %s knows type %s, and jobs of it are due since %s', v_rule.period, d.job_type,
        to_char(min(d.oldest) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"'))
    from rota.alert_due(v_rule.queue, v_rule.period) d
    where not d.known and d.served and (v_rule.job_type is null or d.job_type = v_rule.job_type)
    group by d.job_type having sum(d.jobs) >= v_rule.at_least order by 2 desc limit 100;
  elsif v_rule.kind = 'no_worker' then
    return query
    select d.queue, extract(epoch from v_now - min(d.oldest))::float8, format('no worker seen within %s serves queue %s, and jobs in it are due since %s',
        v_rule.period, d.queue, to_char(min(d.oldest) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"'))
    from rota.alert_due(v_rule.queue, v_rule.period) d
    where not d.served and (v_rule.job_type is null or d.job_type = v_rule.job_type)
    group by d.queue having sum(d.jobs) >= v_rule.at_least order by 2 desc limit 100;
  elsif v_rule.kind = 'schedule_overdue' then
    -- One that paused itself, for it cannot be run as it is, is late as well; one that a person paused is not. Nor is what a worker that has just begun,
    -- after a time without any, is about to fire, nor what waits since everything goes on again.
    select max(a.at) into v_resumed from rota.alert_resumed(v_rule.period) a where a.queue is null;
    return query
    select late.name, extract(epoch from v_now - late.at)::float8, case when late.paused then format('schedule %s has stopped by itself: %s', late.name, late.why)
      else format('schedule %s was to run at %s', late.name, to_char(late.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"')) end
    from (select s.name, s.paused_at is not null as paused, coalesce(s.paused_at, s.next_run_at, s.since) as at, s.paused_why as why
          from rota.schedule s
          where s.cron is not null and s.disabled_at is null and (s.paused_at is null or s.refused)) late
    where greatest(late.at, case when not late.paused then v_resumed end) < v_now - v_rule.period
      and (late.paused or v_now - least(v_rule.period, interval '1 minute') > (
        select coalesce(min(w.started_at), '-infinity') from rota.worker w where coalesce(w.stopped_at, w.heartbeat_at) > v_now - v_rule.period))
    order by 2 desc limit 100;
  end if;
end $$;

-- Takes the rules that are due to be evaluated, each for one worker: nobody else is given them for the next 50 s. What a disabled rule had found is over.
create function rota.alert_take() returns table (name text, repeat_after interval) language plpgsql set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  update rota.alert a set over_at = rota.clock(), state = 'over', told = a.told + 1, posted = a.told + 1
  from rota.alert_rule r where r.name = a.rule and not r.enabled and a.over_at is null;
  return query
  update rota.alert_rule r set due_at = rota.clock() + interval '50 seconds'
  where r.name = any (array(
    select d.name from rota.alert_rule d
    where d.enabled and (d.due_at is null or d.due_at <= rota.clock() or d.due_at > rota.clock() + interval '1 day')
    order by d.name for update skip locked))
  returning r.name, r.repeat_after;
end $$;

-- Writes what was decided of a rule's subjects: an array of objects step (fires, repeats, over, missed, still), subject, told (as it was seen; 0: no row),
-- value, message. Returns what is now to be told, for a step whose row somebody else has told of since is none. Where the rule says so, a job goes out in
-- the same transaction; what keeps it from going out is returned as problem. The rule is not evaluated again before p_pause.
create function rota.alert_write(p_rule text, p_steps jsonb, p_pause interval)
returns table (subject text, state text, since timestamptz, told int, value float8, message text, severity text, problem text)
language plpgsql set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_rule rota.alert_rule;
  v_step record;
begin
  update rota.alert_rule r set due_at = greatest(r.due_at, rota.clock() + p_pause) where r.name = p_rule returning r.* into v_rule;
  if not found then
    return;
  end if;
  for v_step in
    select * from jsonb_to_recordset(p_steps) s(step text, subject text, told int, value float8, message text) order by s.subject
  loop
    if v_step.step in ('missed', 'still') then
      update rota.alert a set missed = case when v_step.step = 'missed' then a.missed + 1 else 0 end,
        value = coalesce(v_step.value, a.value), message = coalesce(v_step.message, a.message)
      where a.rule = p_rule and a.subject = v_step.subject and a.told = v_step.told;
      continue;
    end if;
    insert into rota.alert as a (rule, subject, state, since, last_told_at, told, value, message)
    select p_rule, v_step.subject, v_step.step, rota.clock(), rota.clock(), 1, coalesce(v_step.value, 0), coalesce(v_step.message, '')
    where v_step.step = 'fires' or exists (select from rota.alert e where e.rule = p_rule and e.subject = v_step.subject)
    on conflict (rule, subject) do update set state = excluded.state, last_told_at = rota.clock(), told = a.told + 1, missed = 0, post_at = null,
      since = case when excluded.state = 'fires' then rota.clock() else a.since end,
      over_at = case when excluded.state = 'over' then rota.clock() end,
      value = case when excluded.state = 'over' then a.value else excluded.value end,
      message = case when excluded.state = 'over' then a.message else excluded.message end
    where a.told = v_step.told
    returning a.subject, a.state, a.since, a.told, a.value, a.message into subject, state, since, told, value, message;
    continue when not found;
    severity := v_rule.severity;
    problem := null;
    if v_rule.tell_job is not null then
      begin
        insert into rota.job (job_type, payload, idempotency_key)
        values (v_rule.tell_job, jsonb_build_object('rule', p_rule, 'subject', subject, 'state', state, 'severity', severity, 'since', since, 'value', value,
          'message', message), 'alert:' || md5(concat_ws(chr(10), p_rule, subject, since, told)));
      exception when others then
        problem := sqlerrm;
      end;
    end if;
    return next;
  end loop;
end $$;

-- Takes what was told of alerts and not posted yet, each for one worker: nobody else is given it for the next 50 s. What was posted is not given again;
-- what was tried in vain stands behind what was not, or a few that the URL refuses would keep all others back.
create function rota.alert_unposted(p_limit int)
returns table (rule text, subject text, state text, severity text, since timestamptz, over_at timestamptz, told int, value float8, message text)
language sql set search_path = rota, pg_temp as $$
  update rota.alert a set post_at = rota.clock() + interval '50 seconds'
  from rota.alert_rule r
  where r.name = a.rule and (a.rule, a.subject) in (
    select u.rule, u.subject from rota.alert u
    where u.posted < u.told and (u.post_at is null or u.post_at <= rota.clock() or u.post_at > rota.clock() + interval '1 day')
      and (u.over_at is null or u.over_at > rota.clock() - interval '1 day')
    order by u.post_at nulls first, u.last_told_at limit p_limit for update skip locked)
  returning a.rule, a.subject, a.state, r.severity, a.since, a.over_at, a.told, a.value, a.message
$$;

-- Forgets alerts that have been over for 30 days. Returns how many.
create function rota.alerts_forget(p_limit int) returns int language plpgsql set search_path = rota, pg_temp as $$
declare v_count int; begin
  with old as materialized (
    select a.rule, a.subject from rota.alert a where a.over_at < rota.clock() - interval '30 days' limit p_limit for update skip locked)
  delete from rota.alert a using old o where a.rule = o.rule and a.subject = o.subject;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
