-- Why: what should run again and again is a row, whoever made it: code, the API, the command line or plain SQL. Which ticks are due is decided in
-- Python, which knows cron texts and time zones; that each tick is one job over the whole fleet is decided here: the transaction that inserts the job
-- is the one that moves next_run_at, and it names the next_run_at that it has seen. Oldest release that can live with this: 0.1.0.

create table rota.schedule (
  name text primary key check (length(name) between 1 and 200),
  origin text not null default 'sql' check (origin in ('code', 'api', 'cli', 'sql')),
  job_type text not null check (length(job_type) between 1 and 200),
  payload jsonb not null default '{}',
  payload_version smallint,
  queue text check (length(queue) between 1 and 100),           -- NULL, here and below: what the type says when the tick comes
  priority smallint check (priority between -100 and 100),
  max_attempts int check (max_attempts between 1 and 10000),
  expires interval check (expires between interval '1 millisecond' and interval '36525 days'),
  meta jsonb,
  cron text check (length(cron) between 1 and 512),              -- NULL: runs when somebody triggers it, and not else
  timezone text not null default 'UTC' check (length(timezone) between 1 and 100),
  catch_up text not null default 'latest' check (catch_up in ('skip', 'latest', 'all')),
  overlap text not null default 'skip' check (overlap in ('skip', 'allow')),
  jitter interval check (jitter >= interval '0' and jitter <= interval '1 day'),
  paused_at timestamptz,
  paused_by text,
  paused_why text,
  refused boolean not null default false,        -- Rota has paused it, for it cannot be planned or enqueued as it is: a change of the definition ends the pause
  disabled_at timestamptz,                       -- since when the newest release no longer declares it
  next_run_at timestamptz,                       -- the next tick; NULL: the next pass plans it, from `since` on
  since timestamptz not null default rota.clock(),               -- ticks up to then are none: it was made, changed or resumed then
  last_run_at timestamptz,                       -- when a run was enqueued last, …
  last_job bigint,                               -- … as this job
  release text,                                  -- of one declared in code: the release that declared it last, …
  declared_at timestamptz,                       -- … and when
  created_at timestamptz not null default rota.clock(),
  updated_at timestamptz not null default rota.clock(),          -- of the definition
  constraint schedule_code_has_a_release check (origin <> 'code' or release is not null and declared_at is not null),
  constraint schedule_pause_is_whole check (paused_at is not null or paused_by is null and paused_why is null and not refused),
  -- One row that Python cannot read would stop all schedules.
  constraint schedule_times_are_readable check (
    least(paused_at, disabled_at, next_run_at, since, last_run_at, declared_at, created_at, updated_at) >= '1970-01-01 00:00:00+00'
    and greatest(paused_at, disabled_at, next_run_at, since, last_run_at, declared_at, created_at, updated_at) < '9000-01-01 00:00:00+00'),
  constraint schedule_meta_is_an_object check (jsonb_typeof(meta) = 'object'),
  -- That they are small is looked at when the schedule is planned: a CHECK would forbid every UPDATE once the limit is lowered, also that of a pause.
  constraint schedule_payload_is_an_object check (jsonb_typeof(payload) = 'object')
);
create index schedule_next on rota.schedule (next_run_at) where cron is not null and paused_at is null and disabled_at is null;
create index schedule_unplanned on rota.schedule (since)
  where next_run_at is null and cron is not null and paused_at is null and disabled_at is null;

-- By whom a refused schedule is paused. Put together, for as one word in our SQL it is the schema's name. A person, or a role, may be called so, too.
create function rota.itself() returns text language sql immutable parallel safe as $$ select 'ro' || 'ta' $$;

-- Which jobs were runs of which schedule: so that "every run of X" needs no index on history, whose every row would pay for it.
create table rota.schedule_run (
  schedule text not null,
  job bigint not null,
  scheduled_for timestamptz,                     -- NULL: somebody triggered it
  enqueued_at timestamptz not null default rota.clock(),
  primary key (schedule, job)
);
create index schedule_run_enqueued on rota.schedule_run (enqueued_at);

-- Whether a run of a schedule is still going. Only jobs of schedules are in it, and no dead ones, of which there may be many.
create index job_schedule on rota.job (schedule, id) where schedule is not null and status <> 'dead';

-- The releases that workers ran. The newest is the one whose first worker started last: a roll-back makes the old one the newest again.
create table rota.release (
  name text primary key,
  started_at timestamptz not null                -- when its first worker started, the first after another release if none of it was at work then
);

-- Every run with what came of it: a dead one ended when it died, whenever somebody put it away. A success of a type that keeps failures only has left no row.
create view rota.runs as
select r.schedule, r.scheduled_for, r.job, r.enqueued_at, coalesce(j.status, 'succeeded') as status, j.attempts, j.started_at,
  coalesce(j.finished_at, j.failed_at) as ended_at,
  case when j.status in ('succeeded', 'cancelled', 'dead', 'failed') then coalesce(j.finished_at, j.failed_at) - j.started_at end as duration, j.error_type, j.last_error
from rota.schedule_run r
left join lateral (
  select l.status, l.attempts, l.started_at, l.failed_at, null::timestamptz as finished_at, l.error_type, l.last_error from rota.job l where l.id = r.job
  union all
  select h.status, h.attempts, h.started_at, h.failed_at, case when h.status <> 'dead' then h.finished_at end, h.error_type, h.last_error from rota.job_history h where h.id = r.job
  limit 1) j on true;

-- After job_fill, by its name: a job that was refused its key is no run. SECURITY DEFINER: a producer needs INSERT on job and nothing else.
create function rota.job_run() returns trigger language plpgsql security definer set search_path = rota, pg_temp as $$
begin
  insert into rota.schedule_run (schedule, job, scheduled_for) values (new.schedule, new.id, new.scheduled_for) on conflict do nothing;
  return new;
end $$;
create trigger job_run before insert on rota.job for each row when (new.schedule is not null) execute function rota.job_run();

-- What follows from a change, by whomever: another cron text or zone, the end of a pause and of being disabled count from now on, and what Rota has
-- paused is tried again.
create function rota.schedule_changed() returns trigger language plpgsql set search_path = rota, pg_temp as $$
begin
  new.updated_at := rota.clock();
  if new.refused and old.refused and new.paused_by is distinct from old.paused_by then
    new.refused := false;  -- a person has made it their own
  end if;
  if new.refused and old.refused and (new.cron, new.timezone, new.job_type, new.payload, new.meta, new.queue, new.priority)
      is distinct from (old.cron, old.timezone, old.job_type, old.payload, old.meta, old.queue, old.priority) then
    new.paused_at := null;
  end if;
  if new.paused_at is null then
    new.paused_by := null;
    new.paused_why := null;
    new.refused := false;
  elsif old.paused_at is null then
    new.paused_by := coalesce(new.paused_by, session_user);
  end if;
  if (new.cron, new.timezone) is distinct from (old.cron, old.timezone) or old.paused_at is not null and new.paused_at is null
      or old.disabled_at is not null and new.disabled_at is null then
    new.since := rota.clock();
    if new.next_run_at is not distinct from old.next_run_at then
      new.next_run_at := null;
    end if;
  end if;
  return new;
end $$;
create trigger schedule_changed before update on rota.schedule for each row
when ((old.origin, old.job_type, old.payload, old.payload_version, old.queue, old.priority, old.max_attempts, old.expires, old.meta, old.cron, old.timezone,
    old.catch_up, old.overlap, old.jitter, old.paused_at, old.disabled_at)
  is distinct from (new.origin, new.job_type, new.payload, new.payload_version, new.queue, new.priority, new.max_attempts, new.expires, new.meta, new.cron,
    new.timezone, new.catch_up, new.overlap, new.jitter, new.paused_at, new.disabled_at))
execute function rota.schedule_changed();

-- Schedules to plan: those not planned yet, and those whose next_run_at has come, read from p_after on, for the index keeps entries of ticks that are
-- long gone. None while everything is paused: what is due then is dealt with afterwards, as after an outage. With the clock, and the seconds until the next tick of all others.
create function rota.schedules_due(p_after timestamptz, p_limit int)
returns table (now timestamptz, paused boolean, next_in_s float8, name text, cron text, timezone text, catch_up text, jitter_s float8, next_run_at timestamptz,
  since timestamptz, unfit text)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_paused boolean := rota.is_paused(); v_limit int := case when v_paused then 0 else p_limit end; begin
  return query
  select rota.clock(), v_paused, (select extract(epoch from x.next_run_at - rota.clock())::float8 from rota.schedule x
      where x.next_run_at > rota.clock() and x.cron is not null and x.paused_at is null and x.disabled_at is null order by x.next_run_at limit 1),
    due.name, due.cron, due.timezone, due.catch_up, extract(epoch from due.jitter)::float8, due.next_run_at, due.since,
    case when greatest(octet_length(due.payload::text), octet_length(due.meta::text)) > rota.payload_bytes_max()
      then format('its payload or meta is over the limit of %s bytes: store the data elsewhere and pass a reference', rota.payload_bytes_max()) end
  from (select) one
  left join lateral (
    (select s.* from rota.schedule s
     where s.next_run_at > p_after and s.next_run_at <= rota.clock() and s.cron is not null and s.paused_at is null and s.disabled_at is null
     order by s.next_run_at limit v_limit)
    union all
    (select s.* from rota.schedule s
     where s.next_run_at is null and s.cron is not null and s.paused_at is null and s.disabled_at is null
     order by s.since limit v_limit)) due on true;
end $$;

-- Enqueues ticks of a schedule and moves its next_run_at to p_then, together, if it stands where it was seen. Returns a row without a tick when it did,
-- and one for each tick: its job, and of one that was skipped the job of this schedule that was still going. No row: somebody else did it.
create function rota.schedule_advance(p_name text, p_next_run_at timestamptz, p_since timestamptz, p_then timestamptz, p_ticks timestamptz[],
  p_run_ats timestamptz[])
returns table (scheduled_for timestamptz, job bigint, live bigint) language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_schedule rota.schedule; v_last bigint; v_status text; begin
  if cardinality(p_ticks) = 0 and not has_table_privilege('rota.schedule', 'update') then
    return;  -- somebody who may resume and put schedules and no more: the next pass announces it
  end if;
  select * into v_schedule from rota.schedule s
  where s.name = p_name and s.next_run_at is not distinct from p_next_run_at and s.since = p_since
    and s.cron is not null and s.paused_at is null and s.disabled_at is null
  for no key update skip locked;
  if not found or rota.is_paused() then
    return;
  end if;
  return next;
  for i in 1 .. cardinality(p_ticks) loop
    scheduled_for := p_ticks[i];
    live := null;
    if v_schedule.overlap = 'skip' then
      select j.id, j.status into live, v_status from rota.job j
      where j.schedule = p_name and j.status <> 'dead' and j.schedule is not null order by j.schedule, j.id limit 1;
    end if;
    if live is null then
      job := rota.schedule_enqueue(v_schedule, p_ticks[i], p_run_ats[i]);
      v_last := job;
    else
      job := rota.schedule_skip(v_schedule, p_ticks[i], format('job %s of this schedule was still %s', live, v_status));
    end if;
    return next;
  end loop;
  update rota.schedule s
  set next_run_at = p_then, last_job = coalesce(v_last, s.last_job), last_run_at = case when v_last is null then s.last_run_at else rota.clock() end
  where s.name = p_name;
end $$;

-- Inserts a job of a schedule; returns its id. p_tick NULL: somebody triggered it.
create function rota.schedule_enqueue(p_schedule rota.schedule, p_tick timestamptz, p_run_at timestamptz) returns bigint
language plpgsql set search_path = rota, pg_temp as $$
declare v_job bigint; v_run_at timestamptz := greatest(p_run_at, rota.clock()); begin
  insert into rota.job (queue, job_type, payload, payload_version, priority, run_at, expires_at, max_attempts, meta, schedule, scheduled_for)
  values (p_schedule.queue, p_schedule.job_type, p_schedule.payload, p_schedule.payload_version, p_schedule.priority, v_run_at,
    v_run_at + coalesce(p_schedule.expires, (select t.expires from rota.job_type t where t.name = rota.canonical_type(p_schedule.job_type))),
    p_schedule.max_attempts, p_schedule.meta, p_schedule.name, p_tick)
  returning id into v_job;
  return v_job;
end $$;

-- Leaves a row in history for a tick that was not enqueued, because an earlier run was still going; returns its id.
create function rota.schedule_skip(p_schedule rota.schedule, p_tick timestamptz, p_why text) returns bigint
language plpgsql set search_path = rota, pg_temp as $$
declare v_job bigint := nextval(pg_get_serial_sequence('rota.job', 'id')); v_type rota.job_type; begin
  perform rota.today_ensure();
  select * into v_type from rota.job_type t where t.name = rota.canonical_type(p_schedule.job_type);
  insert into rota.job_history (id, queue, job_type, payload, payload_version, status, priority, run_at, attempts, max_attempts, claims, meta, schedule,
    scheduled_for, created_at, updated_at, last_error, error_type, finished_at)
  values (v_job, coalesce(p_schedule.queue, v_type.queue, 'default'), p_schedule.job_type, p_schedule.payload, p_schedule.payload_version, 'cancelled',
    coalesce(p_schedule.priority, v_type.priority, 0), p_tick, 0, p_schedule.max_attempts, 0, p_schedule.meta, p_schedule.name, p_tick, rota.clock(),
    rota.clock(), p_why, 'Overlap', rota.clock());
  insert into rota.schedule_run (schedule, job, scheduled_for) values (p_schedule.name, v_job, p_tick);
  return v_job;
end $$;

-- Pauses a schedule that cannot be planned or enqueued as it is, if it is still the one that was seen. Returns whether it did.
create function rota.schedule_refuse(p_name text, p_next_run_at timestamptz, p_since timestamptz, p_why text) returns boolean
language plpgsql set search_path = rota, pg_temp as $$
begin
  update rota.schedule s set paused_at = rota.clock(), paused_by = rota.itself(), paused_why = left(p_why, 500), refused = true
  where s.name = p_name and s.next_run_at is not distinct from p_next_run_at and s.since = p_since and s.paused_at is null;
  return found;
end $$;

-- Whether a release is at work: a worker of it is alive, or was a drain, as is seen by its short life, and the next may come. Two crontabs whose drains
-- take turns would make each release the newest once a minute.
create function rota.release_at_work(p_release text) returns boolean language sql stable set search_path = rota, pg_temp as $$
  select exists (
    select from rota.worker w
    where w.release = p_release and case when w.stopped_at is null then w.heartbeat_at > rota.clock() - interval '1 minute'
      else w.stopped_at > rota.clock() - interval '10 minutes' and w.stopped_at < w.started_at + interval '2 minutes' end)
$$;

-- The release whose first worker started last, among those that are at work (p_here: so is this one), else among all.
create function rota.release_newest(p_here text default null) returns text language sql stable set search_path = rota, pg_temp as $$
  select r.name from rota.release r
  order by coalesce(r.name = p_here, false) or rota.release_at_work(r.name) desc, r.started_at desc, r.name desc
  limit 1
$$;

-- Declares the schedules of a release whose worker starts, or that is about to be deployed (p_is_deploy): an array of objects with the columns of
-- schedule, durations in seconds. A worker of a release that is not the newest changes nothing: two releases side by side would take turns. Pauses and
-- next_run_at stay, the latter unless cron text or zone are others. Returns how many are declared.
create function rota.schedules_declare(p_schedules jsonb, p_release text, p_is_deploy boolean) returns int
language plpgsql set search_path = rota, pg_temp as $$
declare v_count int; begin
  insert into rota.release as r (name, started_at) values (p_release, rota.clock())
  on conflict (name) do update set started_at = excluded.started_at
  where exists (select from rota.release o where o.name <> p_release and o.started_at >= r.started_at) and not rota.release_at_work(p_release);
  if not p_is_deploy and rota.release_newest(p_release) <> p_release then
    return 0;
  end if;
  insert into rota.schedule as s (name, origin, job_type, payload, payload_version, queue, priority, max_attempts, expires, meta, cron, timezone, catch_up,
    overlap, jitter, release, declared_at)
  select d.name, 'code', d.job_type, d.payload, d.payload_version, d.queue, d.priority, d.max_attempts, make_interval(secs => d.expires_s), d.meta, d.cron,
    d.timezone, d.catch_up, d.overlap, make_interval(secs => d.jitter_s), p_release, rota.clock()
  from rota.schedules_read(p_schedules) d
  order by d.name  -- ten workers that start at once lock in one order
  on conflict (name) do update set origin = 'code', job_type = excluded.job_type, payload = excluded.payload, payload_version = excluded.payload_version,
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, expires = excluded.expires, meta = excluded.meta,
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up, overlap = excluded.overlap, jitter = excluded.jitter,
    release = excluded.release, declared_at = excluded.declared_at, disabled_at = null;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Definitions as clients send them, as rows.
create function rota.schedules_read(p_schedules jsonb)
returns table (name text, job_type text, payload jsonb, payload_version smallint, queue text, priority smallint, max_attempts int, expires_s float8,
  meta jsonb, cron text, timezone text, catch_up text, overlap text, jitter_s float8)
language sql immutable as $$
  select * from jsonb_to_recordset(p_schedules) d(name text, job_type text, payload jsonb, payload_version smallint, queue text, priority smallint,
    max_attempts int, expires_s float8, meta jsonb, cron text, timezone text, catch_up text, overlap text, jitter_s float8)
$$;

-- Disables what is declared in code and, for an hour, not in the newest release; of a release without a name nobody knows whether it is newer. Returns
-- their names.
create function rota.schedules_disable() returns setof text language sql set search_path = rota, pg_temp as $$
  update rota.schedule d set disabled_at = rota.clock()
  where d.name = any (array(
    select s.name
    from rota.release r
    join rota.schedule s on s.origin = 'code' and s.disabled_at is null and s.release <> r.name and s.declared_at <= rota.clock() - interval '1 hour'
    where r.name = rota.release_newest() and r.name <> 'unknown' and r.started_at <= rota.clock() - interval '1 hour'
    for no key update of s skip locked))  -- a worker that starts locks them in another order
  returning d.name
$$;

-- Writes down what a person did to a schedule or a queue, or, with neither, to everything.
create function rota.acted(p_verb text, p_why text, p_by text, p_schedule text default null, p_queue text default null, p_detail jsonb default null)
returns void language plpgsql set search_path = rota, pg_temp as $$
begin
  insert into rota.action (verb, schedule, queue, by, why, detail)
  values (p_verb, p_schedule, p_queue, coalesce(rota.one_line(p_by, 200), session_user), rota.one_line(p_why, 500), p_detail);
end $$;

-- Makes a schedule, or changes the one of that name; p_origin: api, cli or sql. Pauses and next_run_at stay as in schedules_declare. Returns `made`,
-- `changed`, or `code`: the code declares it, and nothing was changed.
create function rota.schedule_put(p_schedule jsonb, p_origin text, p_why text default null, p_by text default null) returns text
language plpgsql security definer set search_path = rota, pg_temp as $$
declare v_name text := p_schedule ->> 'name'; v_made boolean; begin
  insert into rota.schedule as s (name, origin, job_type, payload, payload_version, queue, priority, max_attempts, expires, meta, cron, timezone, catch_up,
    overlap, jitter)
  select d.name, p_origin, d.job_type, coalesce(d.payload, '{}'), d.payload_version, d.queue, d.priority, d.max_attempts,
    make_interval(secs => d.expires_s), d.meta, d.cron, coalesce(d.timezone, 'UTC'), coalesce(d.catch_up, 'latest'), coalesce(d.overlap, 'skip'),
    make_interval(secs => d.jitter_s)
  from rota.schedules_read(jsonb_build_array(p_schedule)) d
  on conflict (name) do update set origin = excluded.origin, job_type = excluded.job_type, payload = excluded.payload,
    payload_version = excluded.payload_version, queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    expires = excluded.expires, meta = excluded.meta, cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    overlap = excluded.overlap, jitter = excluded.jitter, disabled_at = null
  where s.origin <> 'code' or s.disabled_at is not null
  returning s.xmax = 0 into v_made;
  if v_made is null then
    return 'code';
  end if;
  perform rota.acted('put', p_why, p_by, v_name, p_detail => p_schedule);
  return case when v_made then 'made' else 'changed' end;
end $$;
revoke execute on function rota.schedule_put(jsonb, text, text, text) from public;

-- Pauses a schedule: from now on no tick is enqueued; what is enqueued already runs. Paused again, the newest p_why and p_by hold; paused_at stays.
-- Returns `paused` or `not found`.
create function rota.schedule_pause(p_name text, p_why text default null, p_by text default null) returns text
language plpgsql security definer set search_path = rota, pg_temp as $$
begin
  update rota.schedule s set paused_at = coalesce(s.paused_at, rota.clock()), paused_by = coalesce(rota.one_line(p_by, 200), session_user),
    paused_why = rota.one_line(p_why, 500), refused = false
  where s.name = p_name;
  if not found then
    return 'not found';
  end if;
  perform rota.acted('pause', p_why, p_by, p_name);
  return 'paused';
end $$;
revoke execute on function rota.schedule_pause(text, text, text) from public;

-- Ends a pause. The ticks in it are not caught up with. Returns `resumed`, `not paused` or `not found`.
create function rota.schedule_resume(p_name text, p_why text default null, p_by text default null) returns text
language plpgsql security definer set search_path = rota, pg_temp as $$
begin
  update rota.schedule s set paused_at = null, paused_by = null, paused_why = null where s.name = p_name and s.paused_at is not null;
  if not found then
    return case when exists (select from rota.schedule s where s.name = p_name) then 'not paused' else 'not found' end;
  end if;
  perform rota.acted('resume', p_why, p_by, p_name);
  return 'resumed';
end $$;
revoke execute on function rota.schedule_resume(text, text, text) from public;

-- Enqueues a run now, also of a schedule that is paused or disabled, also while another run is going. Returns the job's id; NULL: there is no such
-- schedule.
create function rota.schedule_trigger(p_name text, p_why text default null, p_by text default null) returns bigint
language plpgsql security definer set search_path = rota, pg_temp as $$
declare v_schedule rota.schedule; v_job bigint; begin
  select * into v_schedule from rota.schedule s where s.name = p_name for no key update;
  if not found then
    return null;
  end if;
  v_job := rota.schedule_enqueue(v_schedule, null, rota.clock());
  update rota.schedule s set last_run_at = rota.clock(), last_job = v_job where s.name = p_name;
  perform rota.acted('trigger', p_why, p_by, p_name, p_detail => jsonb_build_object('job', v_job));
  return v_job;
end $$;
revoke execute on function rota.schedule_trigger(text, text, text) from public;

-- Deletes a schedule; its runs stay. Returns `deleted`, `code` (the code declares it, and would make it again) or `not found`.
create function rota.schedule_delete(p_name text, p_why text default null, p_by text default null) returns text
language plpgsql security definer set search_path = rota, pg_temp as $$
begin
  delete from rota.schedule s where s.name = p_name and (s.origin <> 'code' or s.disabled_at is not null);
  if not found then
    return case when exists (select from rota.schedule s where s.name = p_name) then 'code' else 'not found' end;
  end if;
  perform rota.acted('delete', p_why, p_by, p_name);
  return 'deleted';
end $$;
revoke execute on function rota.schedule_delete(text, text, text) from public;

-- Forgets which jobs were runs, when that is as old as history is kept. Returns how many.
create function rota.schedule_runs_forget(p_limit int) returns int language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = rota, pg_temp as $$
declare v_count int; begin
  with old as materialized (
    select r.schedule, r.job from rota.schedule_run r
    where r.enqueued_at < rota.clock() - (select k.keep from rota.retention k where k.what = 'history')
    order by r.enqueued_at limit p_limit for update skip locked)
  delete from rota.schedule_run r using old o where r.schedule = o.schedule and r.job = o.job;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
