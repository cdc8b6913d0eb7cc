-- Why: the statements that workers live on. They are functions so that their plans are pinned: index scans only, planned once a session, whatever
-- the statistics say right after a bulk load, also behind a transaction pooler. Every write to a running job names the claim (id, claims) and
-- touches rows in id order or with SKIP LOCKED. Oldest release that can live with this: 0.1.0.

-- Claims due jobs. Branch k is a priority with its frontier (p_after_…) and how far behind it to look (p_depths); queue q owns the branches
-- p_lo … p_hi, highest priority first, and takes at most p_slots; all together at most p_limit. p_leases and p_records go with p_types. A job that was
-- lost before, that has one attempt only, or whose type is in p_records, may begin only after job_start has recorded it. Paused queues are left out, and
-- each is told as a row with its name and no id: its emptiness means nothing, and must move no frontier.
create function rota.job_claim(
  p_worker text, p_release text, p_types text[], p_leases interval[], p_records boolean[], p_queues text[], p_slots int[], p_lo int[], p_hi int[],
  p_priorities smallint[], p_after_run_at timestamptz[], p_after_id bigint[], p_depths interval[], p_limit int)
returns table (id bigint, origin_id bigint, queue text, job_type text, payload text, payload_version smallint, priority smallint, run_at timestamptz,
  expires_at timestamptz, attempts int, max_attempts int, claims int, idempotency_key text, meta text, created_at timestamptz, start_recorded boolean,
  losses smallint, suspected boolean, schedule text, scheduled_for timestamptz)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  -- Asked once and before the jobs are, so that what is told and what is taken agree.
  v_paused text[] := case
    when exists (select from rota.site s
                 where s.copied is not null or s.paused_at is not null and (s.paused_until is null or s.paused_until > rota.clock())) then p_queues
    else array(select p.name from rota.queue p
               where p.name = any (p_queues) and p.paused_at is not null and (p.paused_until is null or p.paused_until > rota.clock())) end;
begin
  return query
  update rota.job j
  set status = 'running', locked_by = p_worker, locked_until = rota.clock() + p_leases[array_position(p_types, j.job_type)],
    attempts = j.attempts + 1, claims = j.claims + 1, started_at = rota.clock(),
    start_recorded = case when j.losses > 0 or j.max_attempts = 1 or p_records[array_position(p_types, j.job_type)] then false end
  where j.id = any (array(
    select picked.id
    from unnest(p_queues, p_slots, p_lo, p_hi) q(queue, slots, lo, hi)
    cross join lateral (
      select branch.id
      from generate_series(q.lo, q.hi) k
      cross join lateral (
        select b.id from rota.job b
        where b.queue = q.queue and b.priority = p_priorities[k] and b.status in ('queued', 'failed')
          and (b.run_at, b.id) > (least(p_after_run_at[k], rota.clock() - p_depths[k]),
                                  case when p_after_run_at[k] <= rota.clock() - p_depths[k] then p_after_id[k] else 0 end)
          and b.run_at <= rota.clock() and b.job_type = any (p_types)
          -- A misfit waits for another release; one that none has taken for an hour is looked at again, and ends dead if none is alive.
          and (b.misfits is null or not p_release = any (b.misfits) or b.run_at < rota.clock() - interval '1 hour')
        order by b.run_at, b.id limit q.slots for update skip locked) branch
      limit q.slots) picked
    where q.queue <> all (v_paused)
    limit p_limit))
  returning j.id, coalesce(j.origin_id, j.id), j.queue, j.job_type, j.payload::text, j.payload_version, j.priority, j.run_at,
    j.expires_at, j.attempts, j.max_attempts, j.claims, j.idempotency_key, j.meta::text, j.created_at, j.start_recorded, j.losses,
    case when j.losses > 0 and j.error_type = 'LeaseExpired' then true end, j.schedule, j.scheduled_for;
  foreach queue in array v_paused loop
    return next;
  end loop;
end $$;

-- Records that jobs are about to begin, for those whose claim asked for it; returns those still held, and which were recorded. A row that another
-- transaction has locked is not waited for, or one job would keep all others from beginning. Asked twice it answers twice the same.
create function rota.job_start(p_ids bigint[], p_claims int[]) returns table (id bigint, recorded boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with free as materialized (
    select j.id from rota.job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id for no key update of j skip locked),
  started as (
    update rota.job j set start_recorded = true, started_at = rota.clock()
    where j.id = any (array(select f.id from free f))
    returning j.id)
  select j.id, j.id in (select s.id from started s) from rota.job j
  where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;

-- All priorities in use in a queue that a worker does not know: one index descent per gap between the known ones, and one for each that is found.
create function rota.unknown_priorities(p_queue text, p_known smallint[]) returns setof smallint
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
begin
  return query
  select found.priority
  from (select k.priority as low, lead(k.priority, 1, 101::smallint) over (order by k.priority) as high
        from unnest(p_known || (-101)::smallint) k(priority)) gap
  cross join lateral (
    with recursive used as (
      (select b.priority from rota.job b
       where b.queue = p_queue and b.priority > gap.low and b.priority < gap.high and b.status in ('queued', 'failed')
       order by b.priority desc limit 1)
      union all
      select less.priority from used u
      cross join lateral (
        select b.priority from rota.job b
        where b.queue = p_queue and b.priority > gap.low and b.priority < u.priority and b.status in ('queued', 'failed')
        order by b.priority desc limit 1) less)
    select u.priority from used u) found;
end $$;

-- Asks all workers to look at a queue again from p_to on: something became claimable behind their frontiers. Written at most once a second; what
-- falls between is found by the workers' own looks back.
create function rota.look_back(p_queue text, p_to timestamptz) returns void language sql set search_path = rota, pg_temp as $$
  insert into rota.queue as q (name, look_back_to, look_back_asked_at) values (p_queue, p_to, rota.clock())
  on conflict (name) do update set look_back_to = excluded.look_back_to,
    look_back_asked_at = greatest(excluded.look_back_asked_at, q.look_back_asked_at + interval '1 microsecond')  -- a worker sees what is newer
  where q.look_back_asked_at is null or q.look_back_asked_at < rota.clock() - interval '1 second' or q.look_back_to > excluded.look_back_to
$$;

-- Renews the leases of jobs by the worker that still holds them; returns those it held, which were renewed, and which somebody wants stopped. A row that another
-- transaction has locked is not waited for, or one job would cost all others their leases: it is still held, and cannot be reaped meanwhile either.
-- p_leases goes with p_types.
create function rota.job_renew(p_ids bigint[], p_claims int[], p_types text[], p_leases interval[])
returns table (id bigint, renewed boolean, cancel_requested boolean, cancel_reason text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with free as materialized (
    select j.id from rota.job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id for no key update skip locked),
  renewed as (
    update rota.job j set locked_until = rota.clock() + coalesce(p_leases[array_position(p_types, j.job_type)], interval '2 minutes')
    where j.id = any (array(select f.id from free f)))
  select j.id, j.id in (select f.id from free f), j.cancel_requested_at is not null, j.cancel_reason from rota.job j
  where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;

-- Ends jobs: moves them to history as p_statuses say (succeeded or cancelled; NULL: all succeeded). Returns those whose claim was still held. A success
-- of a type with history = 'failures' leaves no row.
create function rota.job_finish(p_ids bigint[], p_claims int[], p_statuses text[], p_ran_s float8[], p_results text[], p_reasons text[], p_release text)
returns setof bigint language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = rota, pg_temp as $$
begin
  return query
  with over as (
    delete from rota.job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    returning j.*),
  ended as (
    select v.id, v.claims, coalesce(v.status, 'succeeded') as status, v.ran_s, v.result, v.reason
    from unnest(p_ids, p_claims, p_statuses, p_ran_s, p_results, p_reasons) v(id, claims, status, ran_s, result, reason)),
  key_kept as (
    update rota.idempotency i
    set expires_at = rota.clock() + coalesce((select t.key_ttl from rota.job_type t where t.name = i.job_type), interval '90 days')
    from over o join ended e on e.id = o.id and e.claims = o.claims
    where o.idempotency_key is not null and e.status = 'succeeded'
      and i.job_type in (o.job_type, rota.canonical_type(o.job_type)) and i.key = o.idempotency_key and i.job = o.id),
  key_freed as (
    delete from rota.idempotency i using over o join ended e on e.id = o.id and e.claims = o.claims
    where o.idempotency_key is not null and e.status = 'cancelled'
      and i.job_type in (o.job_type, rota.canonical_type(o.job_type)) and i.key = o.idempotency_key and i.job = o.id),
  -- The names, former ones too, under which such a type's jobs run; nothing but a look into an empty index where there is no such type.
  unkept as materialized (
    select n.name from rota.job_type t cross join unnest(t.aliases || t.name) n(name)
    where t.history = 'failures' and rota.canonical_type(n.name) = t.name),
  kept as (
    insert into rota.job_history (id, origin_id, queue, job_type, payload, payload_version, status, priority, run_at, expires_at, attempts, max_attempts,
      claims, locked_by, losses, cancel_requested_at, cancel_reason, progress, misfits, last_error, error_type, response_code, verdict, verdict_rule,
      idempotency_key, meta, schedule, scheduled_for, created_at, updated_at, started_at, failed_at, finished_at, result, release)
    select o.id, o.origin_id, o.queue, o.job_type, o.payload, o.payload_version, e.status, o.priority, o.run_at, o.expires_at, o.attempts, o.max_attempts,
      o.claims, o.locked_by, o.losses, o.cancel_requested_at, coalesce(o.cancel_reason, e.reason), o.progress, o.misfits,
      -- The reason for which it was called off takes the place of what the last attempt failed of; that is in `attempt`.
      coalesce(e.reason, o.last_error), case when e.reason is null then o.error_type end, case when e.reason is null then o.response_code end,
      case when e.reason is null then o.verdict end, case when e.reason is null then o.verdict_rule end, o.idempotency_key, o.meta, o.schedule, o.scheduled_for,
      o.created_at, rota.clock(), rota.clock() - e.ran_s * interval '1 second', o.failed_at, rota.clock(), e.result::jsonb, p_release
    from over o join ended e on e.id = o.id and e.claims = o.claims
    where e.status <> 'succeeded' or o.job_type not in (select name from unkept))
  select o.id from over o;
end $$;

-- Takes jobs out of `running` that are not over: failed, dead, snoozed, handed back, misfit. p_outcomes is an array of objects:
--   id, claims        the claim
--   status            failed, dead or queued; of a misfit the server decides
--   charged           whether the attempt counts
--   loss              whether its worker is leaving it behind after it had begun
--   delay_s           seconds until run_at; null leaves run_at, and asks the workers to look back to it
--   ran_s             seconds since the handler began; null: it did not
--   error_type …      what to keep of the error; with one, the attempt gets a row in `attempt`
--   misfit            this release's code cannot read the payload: kept for another release that knows the type and is or was alive within the
--                     hour, in 30 s doubling to 10 min; dead when there is none
-- All rows are locked first, in id order. Returns what became of those whose claim was still held. What somebody called off meanwhile is cancelled, unless
-- it is dead.
create function rota.job_give_back(p_outcomes jsonb, p_release text)
returns table (id bigint, status text, run_at timestamptz, reason text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_queue text; v_run_at timestamptz; v_is_back boolean; v_back bigint[]; v_off bigint[]; begin
  for id, status, run_at, reason, v_is_back in
  with input as materialized (
    select * from jsonb_to_recordset(p_outcomes) i(id bigint, claims int, status text, charged boolean, loss boolean, delay_s float8, ran_s float8, error_type text,
      message text, verdict text, verdict_rule text, response_code int, stack text, misfit boolean)),
  mine as materialized (
    select j.* from rota.job j
    where j.id = any (array(select i.id from input i)) and ((j.id, j.claims) in (select i.id, i.claims from input i)) is true
    order by j.id for update),
  decided as materialized (
    select m.id, m.claims, m.attempts, m.job_type, m.locked_by, m.started_at, i.charged, i.loss, i.ran_s, i.error_type, i.message, i.verdict, i.verdict_rule,
      i.response_code, i.stack, coalesce(i.misfit, false) as misfit,
      case when not coalesce(i.misfit, false) then i.status
        when p_release <> 'unknown' and exists (
          select from rota.worker w
          where w.release not in (p_release, 'unknown') and not w.release = any (coalesce(m.misfits, '{}')) and m.job_type = any (w.job_types)
            and coalesce(w.stopped_at, w.heartbeat_at) > rota.clock() - interval '1 hour') then 'queued'
        else 'dead' end as status,
      case when coalesce(i.misfit, false) then least(600, 30 * 2 ^ least(5, coalesce(cardinality(m.misfits), 0))) else i.delay_s end as delay_s
    from mine m join input i on i.id = m.id and i.claims = m.claims),
  returned as (
    update rota.job j
    set status = d.status, locked_by = null, locked_until = null, start_recorded = null, claims = j.claims + 1,
      attempts = case when d.charged then j.attempts else j.attempts - 1 end,
      losses = case when d.loss then coalesce(j.losses, 0) + 1 else j.losses end,
      run_at = case when d.status = 'dead' or d.delay_s is null then j.run_at else rota.clock() + d.delay_s * interval '1 second' end,
      misfits = case when d.misfit and not p_release = any (coalesce(j.misfits, '{}')) then array_append(j.misfits, p_release) else j.misfits end,
      started_at = case when d.ran_s is null then null else rota.clock() - d.ran_s * interval '1 second' end,
      last_error = coalesce(d.message, j.last_error), error_type = coalesce(d.error_type, j.error_type),
      response_code = case when d.error_type is null then j.response_code else d.response_code end,
      verdict = coalesce(d.verdict, j.verdict), verdict_rule = coalesce(d.verdict_rule, j.verdict_rule),
      failed_at = case when d.error_type is null then j.failed_at else rota.clock() end, updated_at = rota.clock()
    from decided d where j.id = d.id
    returning j.id, case when j.cancel_requested_at is null or j.status = 'dead' then j.status else 'cancelled' end as status, j.run_at, j.cancel_reason,
      d.status = 'queued' and d.delay_s is null as is_back),
  recorded as (
    insert into rota.attempt (job, claim, attempt, job_type, worker, release, started_at, finished_at, outcome, error_type, message, verdict, verdict_rule,
      response_code, stack, next_run_at)
    select d.id, d.claims, d.attempts, d.job_type, d.locked_by, p_release, rota.clock() - d.ran_s * interval '1 second', rota.clock(), r.status,
      d.error_type, d.message, d.verdict, d.verdict_rule, d.response_code, d.stack, case when r.status not in ('dead', 'cancelled') then r.run_at end
    from decided d join returned r on r.id = d.id where d.error_type is not null)
  select r.id, r.status, case when r.status <> 'cancelled' then r.run_at end, case when r.status = 'cancelled' then r.cancel_reason end, r.is_back
  from returned r
  loop
    if status = 'cancelled' then
      v_off := v_off || id;
    elsif v_is_back then
      v_back := v_back || id;
    end if;
    return next;
  end loop;
  if v_off is not null then
    perform rota.job_call_off(v_off);
  end if;
  for v_queue, v_run_at in select j.queue, min(j.run_at) from rota.job j where j.id = any (v_back) group by j.queue order by j.queue loop
    perform rota.look_back(v_queue, v_run_at);
  end loop;
end $$;

-- How long the server has been up. A worker could not renew its leases while it was down, unless there was none: a private server stops with the
-- last process that uses it, so that the next to start it, a drain each minute, has nobody to wait for.
create function rota.uptime() returns interval language sql stable parallel safe as
  'select case when pg_catalog.current_setting(''private_server.stops_with_its_users'', true) = ''on'' then ''1 day''::interval
               else pg_catalog.statement_timestamp() - pg_catalog.pg_postmaster_start_time() end';

-- Lets nothing wait for a lock longer than that, until the transaction ends: a second, or a fifth of one where jobs are tried around one that waits.
-- Upkeep locks its own rows without waiting; what it can stand behind is what a trigger of the user's touches, or a key.
create function rota.wait_briefly(p_only bigint[]) returns void language plpgsql set search_path = rota, pg_temp as $$
declare
  v_now interval := pg_catalog.current_setting('lock_timeout')::interval;
  v_most int := case when p_only is null then 1000 else 200 end;
begin
  if v_now = interval '0' or v_now > v_most * interval '1 ms' then
    perform pg_catalog.set_config('lock_timeout', v_most || 'ms', true);
  end if;
end $$;

-- Takes jobs away from workers that let their leases expire. What may have begun only in a worker's buffer comes back uncharged the first time; from
-- then on the loss counts, by the plan stored with the type. A job whose start had to be recorded and was not has not begun, and is never charged.
-- After the server came up, or after the asking worker's own connection came back (p_steady_s seconds ago; NULL: it was not away), half a lease is left
-- to those who could not renew, 60 s at most. Reads the lease index from p_since on, so that it does not walk over the entries of all jobs that ever
-- ran; not while some must be waited for. p_only: of these jobs only; NULL: of all.
create function rota.job_reap(p_since timestamptz, p_limit int, p_steady_s float8 default null, p_only bigint[] default null)
returns table (id bigint, job_type text, claims int, attempts int, worker text, status text, run_at timestamptz, reason text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_steady interval := least(rota.uptime(), p_steady_s * interval '1 second');
  v_since timestamptz := case when v_steady < interval '90 seconds' then '-infinity' else p_since end;
  v_queue text;
  v_run_at timestamptz;
  v_back bigint[];
  v_off bigint[];
begin
  perform rota.wait_briefly(p_only);
  for id, job_type, claims, attempts, worker, status, run_at, reason in
    with lost as materialized (
      select j.* from rota.job j
      where j.status = 'running' and j.locked_until >= v_since and j.locked_until < rota.clock()
        and v_steady > least(coalesce((select t.lease from rota.job_type t where t.name = rota.canonical_type(j.job_type)), interval '2 minutes') / 2,
                             interval '60 seconds')
        and (p_only is null or j.id = any (p_only))
      order by j.locked_until limit p_limit for update skip locked),
    judged as materialized (
      select l.*, t.retry_after, coalesce(t.on_lost, 'retry') = 'dead' or l.attempts >= coalesce(l.max_attempts, t.max_attempts, 10) as gives_up,
        l.start_recorded is not false as may_have_begun,
        l.start_recorded is true or l.start_recorded is null and coalesce(l.losses, 0) > 0 as charged,
        format('worker %s let its lease expire: it died, froze or lost the database', l.locked_by) as message
      from lost l left join rota.job_type t on t.name = rota.canonical_type(l.job_type)),
    decided as materialized (
      select d.*, case when not d.charged then 'queued' when d.gives_up then 'dead' else 'failed' end as becomes from judged d),
    reaped as (
      update rota.job j
      set status = d.becomes, locked_by = null, locked_until = null, start_recorded = null, claims = j.claims + 1,
        attempts = case when d.charged then j.attempts else j.attempts - 1 end,
        losses = case when d.may_have_begun then coalesce(j.losses, 0) + 1 else j.losses end,
        run_at = case when d.becomes <> 'failed' then j.run_at
          else rota.clock() + coalesce(d.retry_after[least(d.attempts, cardinality(d.retry_after))], interval '10 seconds') end,
        started_at = case when d.may_have_begun then j.started_at end,
        last_error = case when d.may_have_begun then d.message else j.last_error end,
        error_type = case when d.may_have_begun then 'LeaseExpired' else j.error_type end,
        response_code = case when d.may_have_begun then null else j.response_code end,
        verdict = case when d.may_have_begun then 'transient' else j.verdict end,
        verdict_rule = case when d.may_have_begun then 'lease expired' else j.verdict_rule end,
        failed_at = case when d.may_have_begun then rota.clock() else j.failed_at end, updated_at = rota.clock()
      from decided d where j.id = d.id
      returning j.id, j.job_type, j.attempts, case when j.cancel_requested_at is null or j.status = 'dead' then j.status else 'cancelled' end as status,
        j.run_at, j.cancel_reason),
    recorded as (
      insert into rota.attempt (job, claim, attempt, job_type, worker, started_at, finished_at, outcome, error_type, message, verdict, verdict_rule,
        next_run_at)
      select d.id, d.claims, d.attempts, d.job_type, d.locked_by, case when d.may_have_begun then d.started_at end, rota.clock(), r.status, 'LeaseExpired',
        d.message || case when d.charged then '' when d.may_have_begun then '; not charged, for it may not have begun'
          else '; not charged, for it had not begun' end,
        'transient', 'lease expired', case when r.status not in ('dead', 'cancelled') then r.run_at end
      from decided d join reaped r on r.id = d.id)
    select r.id, r.job_type, d.claims, d.attempts, d.locked_by, r.status, r.run_at, case when r.status = 'cancelled' then r.cancel_reason end
    from reaped r join decided d on d.id = r.id
  loop
    if status = 'queued' then
      v_back := v_back || id;
    elsif status = 'cancelled' then
      v_off := v_off || id;
    end if;
    return next;
  end loop;
  if v_off is not null then
    perform rota.job_call_off(v_off);
  end if;
  for v_queue, v_run_at in select j.queue, min(j.run_at) from rota.job j where j.id = any (v_back) group by j.queue order by j.queue loop
    perform rota.look_back(v_queue, v_run_at);
  end loop;
end $$;

-- What a worker must know besides its jobs: requests to look back that are newer than p_asked_since (one per queue), and, when asked to probe, priorities in use that
-- are not in p_known (queue to priorities). NULL when there is nothing.
create function rota.worker_news(p_queues text[], p_asked_since timestamptz[], p_probe boolean, p_known jsonb) returns text
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
declare v_look_back jsonb; v_priorities jsonb; begin
  select jsonb_agg(jsonb_build_array(q.name, q.look_back_to, q.look_back_asked_at)) into v_look_back
  from unnest(p_queues, p_asked_since) k(queue, since) join rota.queue q on q.name = k.queue and q.look_back_asked_at > k.since;
  if p_probe then
    select jsonb_agg(jsonb_build_array(k.queue, found.priority)) into v_priorities
    from jsonb_each(p_known) k(queue, known)
    cross join lateral rota.unknown_priorities(k.queue, array(select p::smallint from jsonb_array_elements_text(k.known) p)) found(priority);
  end if;
  if v_look_back is null and v_priorities is null then
    return null;
  end if;
  return jsonb_build_object('look_back', coalesce(v_look_back, '[]'), 'priorities', coalesce(v_priorities, '[]'))::text;
end $$;

-- The queues and priorities that have jobs ready or to come: one index descent for each, however many jobs there are.
create function rota.ready_queues() returns table (queue text, priority smallint)
language sql stable set enable_seqscan = off set enable_bitmapscan = off set search_path = rota, pg_temp as $$
  with recursive found as (
    (select b.queue, b.priority from rota.job b where b.status in ('queued', 'failed') order by b.queue, b.priority limit 1)
    union all
    select further.queue, further.priority from found f
    cross join lateral (
      select b.queue, b.priority from rota.job b
      where b.status in ('queued', 'failed') and (b.queue, b.priority) > (f.queue, f.priority)
      order by b.queue, b.priority limit 1) further)
  select f.queue, f.priority from found f
$$;

-- When the oldest due job was due; NULL when nothing is.
create function rota.oldest_due() returns timestamptz language sql stable set enable_seqscan = off set enable_bitmapscan = off set search_path = rota, pg_temp as $$
  select min(oldest.run_at)
  from rota.ready_queues() r(queue, priority)
  cross join lateral (
    select b.run_at from rota.job b where b.queue = r.queue and b.priority = r.priority and b.status in ('queued', 'failed') and b.run_at <= rota.clock()
    order by b.run_at limit 1) oldest
$$;
