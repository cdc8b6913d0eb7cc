-- What the judge goes by, in the database that the run is about.
create schema chaos;

-- The jobs and batches up to these are of earlier rounds, which were judged: a soak has many, a run of chaos one.
create table chaos.floor (job bigint not null, batch bigint not null);
insert into chaos.floor values (0, 0);

-- When the database's clock was moved, and how far ahead of the machine's it has been since; a run of chaos does not move it.
create table chaos.moved (at timestamptz primary key default clock_timestamp(), ahead interval not null);

-- Returns when the database's clock showed this time. A statement that waited for the move began before it.
create function chaos.real(timestamptz) returns timestamptz language sql stable as
'select $1 - coalesce((select m.ahead from chaos.moved m where m.at + m.ahead - interval ''1 hour'' <= $1 order by m.at desc limit 1), interval ''0'')';

-- Every change of a job, in the order in which its row was locked: the lease history that Rota itself does not keep.
create table chaos.change (
  seq bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  role text not null default current_setting('application_name'),  -- which part of which process wrote: 'rota reap' is the reaper, in a drain 'rota upkeep'
  job bigint not null,
  was_status text,                               -- NULL: it was inserted
  status text,                                   -- NULL: it moved to history
  was_claims int,
  claims int,
  was_worker text,
  worker text,
  was_until timestamptz,
  until timestamptz,
  was_attempts int,
  attempts int,
  was_losses smallint,
  losses smallint,
  was_recorded boolean,
  recorded boolean,
  job_type text,
  queue text,
  group_key text,
  group_capacity smallint,
  was_priority smallint,
  priority smallint,
  was_run_at timestamptz,
  run_at timestamptz,
  was_in_lane boolean,
  in_lane boolean,
  capped boolean,
  waits_for text,
  xid xid8 not null default pg_current_xact_id(),
  snapshot pg_snapshot not null default pg_current_snapshot(),  -- what was committed at that time
  asked_at timestamptz not null default statement_timestamp()  -- when the statement began that made it
);
create index on chaos.change (job, seq);
create index on chaos.change (group_key, seq) where group_key is not null;
create index on chaos.change (at);

create function chaos.note_change() returns trigger language plpgsql as $$
begin
  insert into chaos.change (job, was_status, status, was_claims, claims, was_worker, worker, was_until, until, was_attempts, attempts,
    was_losses, losses, was_recorded, recorded, job_type, queue, group_key, group_capacity, was_priority, priority, was_run_at, run_at,
    was_in_lane, in_lane, capped, waits_for)
  values (coalesce(new.id, old.id), old.status, new.status, old.claims, new.claims, old.locked_by, new.locked_by, old.locked_until, new.locked_until,
    old.attempts, new.attempts, old.losses, new.losses, old.start_recorded, new.start_recorded, coalesce(new.job_type, old.job_type),
    coalesce(new.queue, old.queue), coalesce(new.group_key, old.group_key), coalesce(new.group_capacity, old.group_capacity), old.priority, new.priority,
    old.run_at, new.run_at, old.in_lane, new.in_lane, new.capped, new.waits_for);
  return null;
end $$;
create trigger note_change after insert or update or delete on rota.job for each row execute function chaos.note_change();

-- Each cap of a queue, each limit and each state of a breaker, from when on.
create table chaos.cap (
  seq bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  queue text not null,
  max_running int
);
create table chaos.pace (
  seq bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  name text not null,
  starts int not null,
  per interval not null,
  burst int not null
);
create table chaos.breaker (
  seq bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  key text not null,
  was_state text,                                -- NULL: it has no row
  state text,
  was_open_until timestamptz,
  open_until timestamptz,
  opened_at timestamptz,
  was_trial_job bigint,
  was_trial_claim int,
  trial_job bigint,
  trial_claim int
);
create index on chaos.breaker (key, at);

create function chaos.note_cap() returns trigger language plpgsql as $$
begin
  if new.max_running is distinct from old.max_running then
    insert into chaos.cap (queue, max_running) values (new.name, new.max_running);
  end if;
  return null;
end $$;
create trigger note_cap after insert or update on rota.queue for each row execute function chaos.note_cap();

create function chaos.note_pace() returns trigger language plpgsql as $$
begin
  insert into chaos.pace (name, starts, per, burst) values (new.name, new.starts, new.per, new.burst);
  return null;
end $$;
create trigger note_pace after insert or update on rota.rate_limit for each row execute function chaos.note_pace();

create function chaos.note_breaker() returns trigger language plpgsql as $$
begin
  insert into chaos.breaker (key, was_state, state, was_open_until, open_until, opened_at, was_trial_job, was_trial_claim, trial_job, trial_claim)
  values (coalesce(new.key, old.key), old.state, new.state, old.open_until, new.open_until, new.opened_at, old.trial_job, old.trial_claim,
    new.trial_job, new.trial_claim);
  return null;
end $$;
create trigger note_breaker after insert or update or delete on rota.breaker for each row execute function chaos.note_breaker();

-- The handlers' own table. The key says that a claim begins once.
create table chaos.run (
  job bigint not null,
  claim int not null,
  worker text not null,
  started_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  primary key (job, claim)
);

-- What the handlers wrote to files, which no crash of the server takes away; loaded when all is over.
create table chaos.witness (
  said text not null,                            -- start or end; message or step: what is under an effect happens; done: its block is over
  job bigint not null,
  claim int not null,
  at_s float8 not null,                          -- seconds since 1970, by the clock of this machine, which is the server's too
  worker text not null,
  how text not null                              -- of an end: returned, raised, stopped or snoozed; of the others the effect's key or the step's name
);
create index on chaos.witness (job, claim);

-- What a caller's transaction wrote beside its job.
create table chaos.sale (tag bigint primary key);

-- What a handler wrote in the transaction that finished its job.
create table chaos.invoice (job bigint not null);

-- What the producer knows to be committed, the processes of the workers, and what was done to them; loaded when all is over.
create table chaos.ordered (tag bigint primary key, job bigint not null, way text not null);
create table chaos.process (pid int not null, release text not null, began_at_s float8 not null, ended_at_s float8, how text not null, code int);
create table chaos.silence (pid int not null, since_s float8 not null, until_s float8);  -- NULL: for ever
create table chaos.mail (seq bigint generated always as identity, message_id text not null, at_s float8 not null);  -- what their server received
create table chaos.hook (seq bigint generated always as identity, endpoint text not null, event_id text not null, at_s float8 not null);  -- what endpoints received

-- What Rota has kept of the jobs, attempts, effects and batches of this round.
create view chaos.history as
select * from rota.job_history where coalesce(origin_id, id) > (select job from chaos.floor);
create view chaos.attempt as select * from rota.attempt where job > (select job from chaos.floor);
create view chaos.effect as select * from rota.effect where job > (select job from chaos.floor);
create view chaos.batch as select * from rota.batch where id > (select batch from chaos.floor);

create view chaos.job as
select id, job_type, status, attempts, max_attempts, claims, losses, start_recorded, locked_by, idempotency_key, payload, error_type,
  null::timestamptz as finished_at, origin_id, false as is_resolved, batch, false as is_requeued, meta, schedule from rota.job
where coalesce(origin_id, id) > (select job from chaos.floor)
union all
select id, job_type, status, attempts, max_attempts, claims, losses, start_recorded, locked_by, idempotency_key, payload, error_type,
  finished_at, origin_id, status = 'dead', batch, coalesce(resolution ? 'requeued_as', false), meta, schedule from chaos.history;

-- The members of a batch, jobs and batches, and what came of each. A dead job that was requeued has given its place to the new one.
create view chaos.member as
select batch, id as job, status from chaos.job where batch is not null and not is_requeued
union all
select parent, null, case outcome when 'succeeded' then 'succeeded' when 'failed' then 'dead' end from chaos.batch where parent is not null;

-- The jobs that follow a batch; one that was requeued is still the same.
create view chaos.follower as
select (meta->'rota.batch'->>'id')::bigint as batch, id as job from chaos.job where meta ? 'rota.batch' and origin_id is null;

-- How each claim went: who took it, whether its handler began, and how it ended.
create view chaos.claim as
select taken.job, taken.claims as claim, taken.worker, taken.seq, taken.at as taken_at, start.at_s is not null as began, to_timestamp(start.at_s) as began_at,
  ended.at as ended_at, ended.status as ended_status, ended.role as ended_by, ended.seq is not null as is_over,
  -- A job that was cancelled before it began is not charged as it moves to history.
  coalesce(ended.attempts, (select h.attempts from rota.job_history h where h.id = taken.job), ended.was_attempts) = ended.was_attempts as charged, ended.was_losses, ended.losses, ended.was_recorded as recorded,
  taken.job_type, taken.queue, taken.group_key, coalesce(taken.group_capacity, 1) as capacity, ended.seq as ended_seq
from chaos.change taken
left join lateral (select min(w.at_s) as at_s from chaos.witness w where w.job = taken.job and w.claim = taken.claims and w.said = 'start') start on true
left join lateral (
  select c.* from chaos.change c
  where c.job = taken.job and c.was_claims = taken.claims and c.was_status = 'running' and c.status is distinct from 'running'
  order by c.seq limit 1) ended on true
where taken.status = 'running' and taken.was_status is distinct from 'running';

-- The jobs that send a message, with the key of its effect; some have the same.
create view chaos.sender as
select id as job, status, split_part(job_type, '_', 2) as if_uncertain, job_type || ':' || (payload->>'n')::bigint / 50 as key
from chaos.job where job_type like 'send%'
union all
select id, status, 'dead', idempotency_key from chaos.job where job_type = 'mail';

-- Each time that a message was sent or a step ran: in which claim, when the handler of that had begun, and when it saw that the effect is done.
create view chaos.deed as
select w.said, w.job, w.claim, w.how as key, case w.said when 'step' then w.job else 0 end as origin_id, to_timestamp(w.at_s) as at,
  (select to_timestamp(min(b.at_s)) from chaos.witness b where b.job = w.job and b.claim = w.claim and b.said = 'start') as began_at,
  (select to_timestamp(min(d.at_s)) from chaos.witness d where d.job = w.job and d.claim = w.claim and d.said = 'done' and d.how = w.how) as done_at
from chaos.witness w where w.said in ('message', 'step');

-- Each time that a job took a place of its lane, and when it was without one again. The order goes by what its row said before.
create view chaos.place as
select t.seq, t.at, t.asked_at, t.xid, t.job, t.group_key, coalesce(t.group_capacity, 1) as capacity, t.was_priority as priority, t.was_run_at as run_at,
  gone.seq as gone_seq, gone.xid as gone_xid
from chaos.change t
left join lateral (
  select c.seq, c.xid from chaos.change c
  where c.job = t.job and c.seq > t.seq and c.was_in_lane and c.in_lane is not true
  order by c.seq limit 1) gone on true
where t.in_lane and t.was_in_lane is not true;

-- When the handler of a claim in a lane ran. One that was lost with its worker may run on: it is not among them.
create view chaos.laned_run as
select c.job, c.claim, c.group_key, c.capacity, c.began_at, (select to_timestamp(min(w.at_s)) from chaos.witness w
  where w.job = c.job and w.claim = c.claim and w.said = 'end') as over_at
from chaos.claim c
where c.group_key is not null and c.began and c.ended_by not in ('rota upkeep', 'rota reap');

-- The starts of handlers that have a limit or a breaker, with its key: chaos.app makes it of the tag.
create view chaos.keyed_start as
select w.job, w.claim, to_timestamp(w.at_s) as at, j.job_type, (j.payload->>'n')::bigint % 2 as number
from chaos.witness w join chaos.job j on j.id = w.job
where w.said = 'start' and j.job_type in ('limited', 'guarded');
