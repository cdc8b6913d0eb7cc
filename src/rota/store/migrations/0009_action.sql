-- Why: at night a person must be able to deal with a job without writing to tables: try it now, take it from a worker that hangs, give it up, requeue or
-- ignore a dead one, run one again. Each says who and why, and leaves a row in `action`. Oldest release that can live with this: 0.1.0.

-- What came of an action on each of these jobs, and where they stand now; p_as of those to which it was done. A dead job that was put away is `dead` here,
-- with the id as which it was requeued.
create function rota.job_answers(p_ids bigint[], p_done bigint[], p_as text) returns table (id bigint, answer text, status text, new_id bigint)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set search_path = rota, pg_temp as $$
  select given.id, case when given.id = any (p_done) then p_as when stands.status is null then 'not found' else 'refused' end, stands.status, stands.new_id
  from (select distinct i.id from unnest(p_ids) i(id)) given
  left join lateral (
    select j.status, null::bigint as new_id from rota.job j where j.id = given.id
    union all
    select h.status, (h.resolution ->> 'requeued_as')::bigint from rota.job_history h where h.id = given.id
    limit 1) stands on true
  order by given.id
$$;

-- Takes jobs to where a person wants them: `queued` and due (retry now) or `dead` (bury). From a running one it takes the lease away, and the attempt is charged
-- as the reaper would charge it: not, when it may have begun only in its worker's buffer and the job was never lost before. The fence is bumped, so the
-- worker, which is told, writes nothing any more. A running job that somebody had called off is cancelled instead of queued.
create function rota.job_take_over(p_verb text, p_ids bigint[], p_why text, p_by text) returns table (id bigint, answer text, status text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_by text := coalesce(rota.one_line(p_by, 200), session_user);
  v_why text := rota.one_line(p_why, 500);
  v_buries boolean := p_verb = 'bury';
  v_done bigint[]; v_off bigint[]; v_workers text[];
begin
  perform rota.today_ensure();
  with mine as materialized (  -- by the primary key alone: with the status the planner may take a partial index, and lock in its order
    select j.* from rota.job j where j.id = any (p_ids) order by j.id for update),
  decided as materialized (
    select m.id, m.claims, m.attempts, m.job_type, m.locked_by, m.started_at, m.status as was, m.status = 'running' as is_held,
      m.status = 'running' and m.start_recorded is not false as may_have_begun,
      m.status <> 'running' or m.start_recorded is true or m.start_recorded is null and coalesce(m.losses, 0) > 0 as charged,
      format('%s by %s%s', case when v_buries then 'buried' else 'taken from its worker to be retried' end, v_by, ': ' || v_why) as message
    from mine m where m.status in ('queued', 'failed', 'running') or v_buries and m.status = 'waiting'),
  taken as (
    update rota.job j
    set status = case when v_buries then 'dead' else 'queued' end, locked_by = null, locked_until = null, start_recorded = null,
      claims = j.claims + d.is_held::int, attempts = j.attempts - (not d.charged)::int,
      losses = case when d.may_have_begun then coalesce(j.losses, 0) + 1 else j.losses end,
      -- What is due already keeps its place.
      run_at = case when v_buries or not d.is_held and j.run_at <= rota.clock() then j.run_at else rota.clock() end,
      misfits = case when v_buries then j.misfits end,
      started_at = case when d.is_held and not d.may_have_begun then null else j.started_at end,
      last_error = case when v_buries or d.is_held then d.message else j.last_error end,
      error_type = case when v_buries then 'Buried' when d.is_held then 'LeaseTaken' else j.error_type end,
      response_code = case when v_buries or d.is_held then null else j.response_code end,
      verdict = case when v_buries then 'fatal' when d.is_held then 'transient' else j.verdict end,
      verdict_rule = case when v_buries or d.is_held then p_verb else j.verdict_rule end,
      failed_at = case when v_buries or d.is_held then rota.clock() else j.failed_at end, updated_at = rota.clock()
    from decided d where j.id = d.id
    returning j.id, j.run_at, d.is_held and not v_buries and j.cancel_requested_at is not null as is_off),
  recorded as (
    insert into rota.attempt (job, claim, attempt, job_type, worker, started_at, finished_at, outcome, error_type, message, verdict, verdict_rule, next_run_at)
    select d.id, d.claims, d.attempts, d.job_type, d.locked_by, case when d.may_have_begun then d.started_at end, rota.clock(),
      case when v_buries then 'dead' when t.is_off then 'cancelled' else 'queued' end, case when v_buries then 'Buried' else 'LeaseTaken' end,
      d.message || case when d.charged then '' when d.may_have_begun then '; not charged, for it may not have begun'
        else '; not charged, for it had not begun' end,
      case when v_buries then 'fatal' else 'transient' end, p_verb, case when not v_buries and not t.is_off then t.run_at end
    from decided d join taken t on t.id = d.id where d.is_held),
  logged as (
    insert into rota.action (verb, job, by, why, detail)
    select p_verb, d.id, v_by, v_why, jsonb_strip_nulls(jsonb_build_object('was', d.was, 'worker', case when d.is_held then d.locked_by end))
    from decided d order by d.id)
  select array_agg(t.id), array_agg(t.id) filter (where t.is_off), array_agg(distinct d.locked_by) filter (where d.is_held)
  into v_done, v_off, v_workers from taken t join decided d on d.id = t.id;
  if v_off is not null then
    perform rota.job_call_off(v_off);
  end if;
  perform pg_notify('rota.workers', worker) from unnest(v_workers) worker;
  if not v_buries then  -- the bell, as for a new job
    perform pg_notify(current_schema(), q.name) from rota.queue q
    where q.bell_until > rota.clock() and (q.paused_at is null or q.paused_until <= rota.clock())
      and q.name in (select j.queue from rota.job j where j.id = any (v_done));
  end if;
  return query
  select a.id, case when a.id = any (v_off) then 'cancelled' else a.answer end, a.status from rota.job_answers(p_ids, v_done, 'done') a;
end $$;

-- The functions for people. SECURITY DEFINER: whoever is granted one may act and needs no right on a table. Nobody is by default. Of each: p_ids at most a
-- thousand or so, for their rows stay locked until the transaction ends; p_why, one line of 500 characters; p_by, 200, left out: who logged in.
-- Each returns for every id what came of it (done, refused, not found; of a cancel also requested) and where the job stands now.

-- Makes jobs due now: those that wait for a later time or a retry, and those that run, whose workers lose them.
create function rota.job_retry_now(p_ids bigint[], p_why text default null, p_by text default null) returns table (id bigint, answer text, status text)
language sql security definer set search_path = rota, pg_temp as $$ select * from rota.job_take_over('retry now', p_ids, p_why, p_by) $$;

-- Gives jobs up: they are dead, keep their keys, and wait for a person.
create function rota.job_bury(p_ids bigint[], p_why text default null, p_by text default null) returns table (id bigint, answer text, status text)
language sql security definer set search_path = rota, pg_temp as $$ select * from rota.job_take_over('bury', p_ids, p_why, p_by) $$;

-- Moves dead jobs, whose rows the caller has locked, to history. p_as goes with p_ids: what each resolution says besides by, at and why.
create function rota.dead_resolve(p_ids bigint[], p_as jsonb[], p_why text, p_by text) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = rota, pg_temp as $$
begin
  with gone as (
    delete from rota.job j where j.id = any (p_ids) returning j.*)
  insert into rota.job_history
  select put.*
  from gone g join unnest(p_ids, p_as) a(id, detail) on a.id = g.id
  cross join lateral jsonb_populate_record(null::rota.job_history, to_jsonb(g) || jsonb_build_object('finished_at', rota.clock(),
    'resolution', jsonb_strip_nulls(jsonb_build_object('by', p_by, 'at', rota.clock(), 'why', p_why)) || a.detail)) put;
  insert into rota.action (verb, job, by, why, detail)
  select case when a.detail ? 'requeued_as' then 'requeue' else 'ignore' end, a.id, p_by, p_why,
    case when a.detail ? 'requeued_as' then a.detail end
  from unnest(p_ids, p_as) a(id, detail) order by a.id;
end $$;

-- When a job that is run once more expires: as long from now as the first one had. From its first run_at, where that is known still, else from its creation.
create function rota.expires_anew(p_expires_at timestamptz, p_run_at timestamptz, p_created_at timestamptz, p_claims int) returns timestamptz
language sql stable set search_path = rota, pg_temp as $$
  select rota.clock() + (p_expires_at - case when p_claims = 0 and p_run_at < p_expires_at then p_run_at else p_created_at end)
$$;

-- Requeues dead jobs: for each a new one with the same origin, which takes the key and the progress along; the old one goes to history with its content
-- and says who, when, why and as what. With p_payload, for a single job, the new one is fixed: it carries that instead. p_payload_version left out: the
-- type's. new_id is the new job's; of a refused one, the job as which it was requeued before.
create function rota.job_requeue(p_ids bigint[], p_why text default null, p_by text default null, p_payload jsonb default null,
  p_payload_version smallint default null) returns table (id bigint, answer text, status text, new_id bigint)
language plpgsql security definer set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_by text := coalesce(rota.one_line(p_by, 200), session_user);
  v_as text := case when p_payload is null then 'requeued' else 'fixed' end;
  v_dead bigint[]; v_new bigint[];
begin
  if p_payload is not null and cardinality(p_ids) <> 1 then
    raise exception 'a corrected payload is for one job, not for %', cardinality(p_ids) using errcode = 'invalid_parameter_value';
  end if;
  if rota.json_wrong('payload', p_payload) is not null then
    raise exception 'rota.job_requeue: %; nothing was changed', rota.json_wrong('payload', p_payload) using errcode = 'invalid_parameter_value';
  end if;
  if p_payload_version not between 1 and 32767 then
    raise exception 'rota.job_requeue: p_payload_version must be from 1 to 32767, not %; nothing was changed', p_payload_version
      using errcode = 'invalid_parameter_value';
  end if;
  perform rota.today_ensure();
  v_dead := array(
    select mine.id from (select j.id, j.status from rota.job j where j.id = any (p_ids) order by j.id for update) mine where mine.status = 'dead');
  v_new := array(select nextval(pg_get_serial_sequence('rota.job', 'id')) from unnest(v_dead));
  -- Without the key, which the old one still has.
  insert into rota.job (id, origin_id, queue, job_type, payload, payload_version, priority, run_at, expires_at, max_attempts, progress, meta, schedule, scheduled_for)
  select p.new_id, coalesce(d.origin_id, d.id), d.queue, d.job_type, coalesce(p_payload, d.payload),
    case when p_payload is null then d.payload_version
      else coalesce(p_payload_version, (select t.version from rota.job_type t where t.name = rota.canonical_type(d.job_type))) end,
    d.priority, rota.clock(), rota.expires_anew(d.expires_at, d.run_at, d.created_at, d.claims), d.max_attempts, d.progress, d.meta, d.schedule, d.scheduled_for
  from unnest(v_dead, v_new) p(id, new_id) join rota.job d on d.id = p.id;
  with moved as (
    update rota.idempotency i set job = p.new_id, expires_at = null
    from unnest(v_dead, v_new) p(id, new_id) join rota.job d on d.id = p.id
    where d.idempotency_key is not null
      and i.job_type in (d.job_type, rota.canonical_type(d.job_type)) and i.key = d.idempotency_key and i.job = d.id
    returning i.job, i.key)
  update rota.job j set idempotency_key = m.key from moved m where j.id = m.job;
  perform rota.dead_resolve(v_dead, array(select jsonb_build_object('as', v_as, 'requeued_as', n.id) from unnest(v_new) n(id)), rota.one_line(p_why, 500), v_by);
  return query
  select a.id, a.answer, a.status, a.new_id from rota.job_answers(p_ids, v_dead, 'done') a;
end $$;

-- Puts dead jobs away with a reason, which must be given. Their keys are free.
create function rota.job_ignore(p_ids bigint[], p_why text, p_by text default null) returns table (id bigint, answer text, status text)
language plpgsql security definer set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_why text := rota.one_line(p_why, 500);
  v_dead bigint[];
begin
  if v_why is null then
    raise exception 'say why these jobs are ignored: the reason is what stays of the decision' using errcode = 'invalid_parameter_value';
  end if;
  perform rota.today_ensure();
  v_dead := array(
    select mine.id from (select j.id, j.status from rota.job j where j.id = any (p_ids) order by j.id for update) mine where mine.status = 'dead');
  delete from rota.idempotency i using rota.job d
  where d.id = any (v_dead) and d.idempotency_key is not null
    and i.job_type in (d.job_type, rota.canonical_type(d.job_type)) and i.key = d.idempotency_key and i.job = d.id;
  perform rota.dead_resolve(v_dead, array(select jsonb_build_object('as', 'ignored') from unnest(v_dead)), v_why,
    coalesce(rota.one_line(p_by, 200), session_user));
  return query
  select a.id, a.answer, a.status from rota.job_answers(p_ids, v_dead, 'done') a;
end $$;

-- Runs jobs again that are over or dead: for each a new one with the same content, an origin of its own and no key. The old ones are left as they are.
create function rota.job_run_again(p_ids bigint[], p_why text default null, p_by text default null)
returns table (id bigint, answer text, status text, new_id bigint)
language plpgsql security definer set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_old bigint[]; v_new bigint[]; begin
  v_old := array(
    select j.id from rota.jobs j where j.id = any (p_ids) and j.status in ('dead', 'succeeded', 'cancelled') order by j.id);
  v_new := array(select nextval(pg_get_serial_sequence('rota.job', 'id')) from unnest(v_old));
  insert into rota.job (id, queue, job_type, payload, payload_version, priority, run_at, expires_at, max_attempts, meta, schedule, scheduled_for)
  select p.new_id, o.queue, o.job_type, o.payload, o.payload_version, o.priority, rota.clock(),
    rota.expires_anew(o.expires_at, o.run_at, o.created_at, o.claims), o.max_attempts, o.meta, o.schedule, o.scheduled_for
  from unnest(v_old, v_new) p(id, new_id)
  join lateral (
    select j.queue, j.job_type, j.payload, j.payload_version, j.priority, j.expires_at, j.run_at, j.created_at, j.claims, j.max_attempts, j.meta, j.schedule,
      j.scheduled_for
    from rota.job j where j.id = p.id
    union all
    select h.queue, h.job_type, h.payload, h.payload_version, h.priority, h.expires_at, h.run_at, h.created_at, h.claims, h.max_attempts, h.meta, h.schedule,
      h.scheduled_for
    from rota.job_history h where h.id = p.id
    limit 1) o on true;
  insert into rota.action (verb, job, by, why, detail)
  select 'run again', p.id, coalesce(rota.one_line(p_by, 200), session_user), rota.one_line(p_why, 500), jsonb_build_object('run_again_as', p.new_id)
  from unnest(v_old, v_new) p(id, new_id) order by p.id;
  return query
  select a.id, a.answer, a.status, coalesce(p.new_id, a.new_id)
  from rota.job_answers(p_ids, v_old, 'done') a left join unnest(v_old, v_new) p(id, new_id) on p.id = a.id order by a.id;
end $$;

revoke execute on function rota.job_retry_now(bigint[], text, text), rota.job_bury(bigint[], text, text), rota.job_requeue(bigint[], text, text, jsonb, smallint),
  rota.job_ignore(bigint[], text, text), rota.job_run_again(bigint[], text, text) from public;
