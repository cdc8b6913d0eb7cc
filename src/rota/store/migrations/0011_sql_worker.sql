-- Why: a program that can run SQL and nothing else can be a worker. What our own workers do in Python (which jobs to claim, what becomes of a failure)
-- is done here for those, on the same statements. Whoever is granted these functions needs no right on a table, and nobody is granted them by default.
-- Oldest release that can live with this: 0.1.0.

-- How far a worker in SQL has seen the due jobs of a queue, as worker/frontier.py keeps it in memory: such a worker may be a new session for every
-- statement. Written every few seconds, and with a claim of many jobs. Goes with its worker.
create table rota.frontier (
  worker text not null references rota.worker on delete cascade,
  queue text not null,
  job_types text[] not null,                     -- for other types it would be another frontier
  priorities smallint[] not null,                -- those known to be in use, highest first …
  run_ats timestamptz[] not null,                -- … and for each the (run_at, id) up to which everything was seen
  ids bigint[] not null,
  asked_at timestamptz not null,                 -- the newest request to look back that was heeded
  look_due_at timestamptz not null,              -- when to look a while behind the frontier …
  look_at_all_due_at timestamptz not null,       -- … and at everything
  saved_at timestamptz not null,
  primary key (worker, queue)
);

create function rota.lease_lost(p_id bigint, p_claims int) returns void language plpgsql set search_path = rota, pg_temp as $$
begin
  raise exception 'lease lost: job % is no longer held under claim %', p_id, p_claims
    using errcode = 'RT001', hint = 'Stop working on it: its lease expired, or somebody took it away, or this claim was settled already. Nothing was written.';
end $$;

-- The job that is held under this claim. Without the status, the number of a job that waits would pass for a claim. p_must: one that is not held is an
-- error; else NULL.
create function rota.job_held(p_id bigint, p_claims int, p_must boolean default true) returns rota.job
language plpgsql set search_path = rota, pg_temp as $$
declare v_job rota.job; begin
  select j.* into v_job from rota.job j where j.id = p_id and j.claims = p_claims;
  if v_job.status = 'running' then
    return v_job;
  end if;
  if p_must then
    perform rota.lease_lost(p_id, p_claims);
  end if;
  return null;
end $$;

-- The release that a worker said it is of.
create function rota.worker_release(p_worker text) returns text language sql stable set search_path = rota, pg_temp as $$
  select coalesce((select w.release from rota.worker w where w.name = p_worker), 'unknown')
$$;

-- A worker in SQL is alive. Written every five seconds at most, and never waited for: another session of the same worker may keep a transaction open.
create function rota.worker_seen(p_worker text, p_queue text, p_types text[], p_release text) returns void
language plpgsql set search_path = rota, pg_temp as $$
declare v_due boolean; begin
  select w.heartbeat_at < rota.clock() - interval '5 seconds' or w.stopped_at is not null or not w.queues ? p_queue or not w.job_types @> p_types
      or w.release <> p_release into v_due
  from rota.worker w where w.name = p_worker;
  if not found then
    insert into rota.worker (name, host, pid, version, release, job_types, queues)
    values (p_worker, coalesce(host(inet_client_addr()), 'local'), pg_backend_pid(), 'sql', p_release, p_types, jsonb_build_object(p_queue, null))
    on conflict do nothing;
  elsif v_due then
    update rota.worker w
    set heartbeat_at = rota.clock(), stopped_at = null, release = p_release, queues = w.queues || jsonb_build_object(p_queue, null),
      job_types = array(select distinct known from unnest(w.job_types || p_types) known order by known)
    where w.name = (select free.name from rota.worker free where free.name = p_worker for no key update skip locked);
  end if;
end $$;

create function rota.words(p_wait interval) returns text language sql immutable parallel safe set search_path = rota, pg_temp as $$
  select case when s < 90 then round(s, 1)::float8 || ' s' when s < 5400 then round(s / 60) || ' min' when s < 129600 then round(s / 3600) || ' h'
    else round(s / 86400) || ' d' end
  from (select extract(epoch from p_wait)::numeric) wait(s)
$$;

-- Declares a job type as Python's `@app.job(…)` does; whoever declares a name last, has it. Left out is what Python leaves out, too.
create function rota.declare(
  job_type text, queue text default 'default', priority int default 0, max_attempts int default 10, lease interval default '2 minutes',
  retry_after interval[] default '{10 s,20 s,40 s,80 s,160 s,320 s,640 s,1280 s,2560 s,1 h}', expires interval default null,
  key_ttl interval default '90 days', history text default 'all', on_lost text default 'retry', timeout interval default '5 minutes',
  aliases text[] default '{}', version int default null, release text default 'unknown')
returns void language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_variable
declare v_wrong text := case
  when coalesce(length(job_type), 0) not between 1 and 200 then 'job_type must be 1 to 200 characters'
  when coalesce(length(queue), 0) not between 1 and 100 then 'queue must be 1 to 100 characters'
  when priority is null or priority not between -100 and 100 then 'priority must be from -100 to 100'
  when max_attempts is null or max_attempts not between 1 and 10000 then 'max_attempts must be from 1 to 10000'
  when lease is null or lease not between interval '1 second' and interval '365 days' then 'lease must be from 1 second to 365 days'
  when timeout is null or timeout not between interval '1 millisecond' and interval '36525 days' then 'timeout must be from 1 ms to a hundred years'
  when expires not between interval '1 millisecond' and interval '36525 days' then 'expires must be from 1 ms to a hundred years'
  when key_ttl is null or key_ttl not between interval '0' and interval '36525 days' then 'key_ttl must be from 0 to a hundred years'
  when coalesce(history, '') not in ('all', 'failures') then 'history must be all or failures'
  when coalesce(on_lost, '') not in ('retry', 'dead') then 'on_lost must be retry or dead'
  when coalesce(cardinality(retry_after), 0) not between 1 and 100 then 'retry_after must be 1 to 100 intervals; the last one repeats'
  when exists (select from unnest(retry_after) one(wait) where wait is null or wait not between interval '1 second' and interval '365 days')
    then 'each of retry_after must be from 1 second to 365 days'
  when aliases is null or exists (select from unnest(aliases) one(name) where coalesce(length(name), 0) not between 1 and 200 or name = job_type)
    then 'aliases must be other names of 1 to 200 characters'
  when version not between 1 and 32767 then 'version must be from 1 to 32767'
  when coalesce(length(release), 0) not between 1 and 200 then 'release must be 1 to 200 characters' end;
v_words text;
begin
  if v_wrong is not null then
    raise exception 'rota.declare: %', v_wrong using errcode = '22023';
  end if;
  select case when max_attempts = 1 then 'no retry, dead after the first failure'
    else string_agg(rota.words(wait), ', ' order by n) || case when max_attempts - 1 > cardinality(retry_after) then ', …' else '' end
      || format(', dead after %s attempts', max_attempts) end
  into v_words from unnest(retry_after) with ordinality plan(wait, n) where n < greatest(max_attempts, 2);
  perform rota.job_type_declare(jsonb_build_array(jsonb_build_object(
    'name', job_type, 'aliases', aliases, 'queue', queue, 'priority', priority, 'max_attempts', max_attempts, 'timeout_s', extract(epoch from timeout),
    'lease_s', extract(epoch from lease), 'expires_s', extract(epoch from expires), 'key_ttl_s', extract(epoch from key_ttl), 'history', history,
    'on_lost', on_lost, 'version', version, 'retry_words', v_words,
    'retry_after_s', (select jsonb_agg(extract(epoch from wait) order by n) from unnest(retry_after) with ordinality plan(wait, n)))), release);
end $$;

-- Enqueues one job, and answers as Python's `enqueue` does: its id, or with a key that is taken the id and status of the job that holds it.
create function rota.enqueue(
  job_type text, payload jsonb default '{}', queue text default null, priority int default null, run_at timestamptz default null,
  expires_at timestamptz default null, max_attempts int default null, idempotency_key text default null, meta jsonb default null,
  payload_version int default null)
returns table (id bigint, created boolean, status text) language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_wrong text := rota.job_wrong(enqueue.job_type, enqueue.payload, enqueue.queue, enqueue.priority, enqueue.run_at, enqueue.expires_at,
  enqueue.max_attempts, enqueue.idempotency_key, enqueue.meta, enqueue.payload_version);
begin
  if v_wrong is not null then
    raise exception 'rota.enqueue: %; nothing was inserted', v_wrong using errcode = '22023';
  end if;
  for attempt in 1 .. 5 loop
    return query
    insert into rota.job (job_type, payload, queue, priority, run_at, expires_at, max_attempts, idempotency_key, meta, payload_version)
    values (enqueue.job_type, coalesce(enqueue.payload, '{}'), enqueue.queue, enqueue.priority, coalesce(enqueue.run_at, rota.clock()),
      enqueue.expires_at, enqueue.max_attempts, enqueue.idempotency_key, enqueue.meta, enqueue.payload_version)
    returning job.id, true, job.status;
    if found then
      return;
    end if;
    return query
    select holder.id, false, holder.status from rota.key_holders(array[enqueue.job_type], array[enqueue.idempotency_key]) holder;
    if found then
      return;
    end if;  -- else its job was cancelled just then
  end loop;
  raise exception 'the idempotency key % of job type % was taken and freed again and again; nothing was inserted, try again',
    enqueue.idempotency_key, enqueue.job_type using errcode = '40001';
end $$;

-- Claims jobs of one queue ahead of the worker's frontier, with a look behind it: 5 s always, 100 s every 2 s, everything every 5 s, the last two rarer
-- where they take long: each may take a hundredth of one connection over all workers.
create function rota.claim_ahead(p_worker text, p_release text, p_queue text, p_types text[], p_count int)
returns table (id bigint, claims int, expires_at timestamptz, start_recorded boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_beginning constant timestamptz := '1970-01-01 00:00:00+00';
  v_begun timestamptz := clock_timestamp();
  v_at rota.frontier;
  v_found smallint[];
  v_save boolean := false;
  v_depth interval := interval '5 seconds';
  v_back_to timestamptz;
  v_asked_at timestamptz;
  v_last_priority smallint;
  v_last_run_at timestamptz;
  v_last_id bigint;
  v_count int := 0;
  v_refusal text;
  v_refused bigint[] := '{}';
  v_known int;
  v_pause interval;
begin
  select f.* into v_at from rota.frontier f where f.worker = p_worker and f.queue = p_queue;
  if v_at.job_types is distinct from p_types then
    v_at := row(p_worker, p_queue, p_types, '{}', '{}', '{}', v_beginning, v_beginning, v_beginning, v_beginning);
  end if;
  select q.look_back_to, q.look_back_asked_at into v_back_to, v_asked_at from rota.queue q where q.name = p_queue and q.look_back_asked_at > v_at.asked_at;
  if found then
    v_save := true;
    v_at.asked_at := v_asked_at;
    for k in 1 .. cardinality(v_at.priorities) loop
      if v_back_to < v_at.run_ats[k] then
        v_at.run_ats[k] := v_back_to;
        v_at.ids[k] := 0;
      end if;
    end loop;
  end if;
  loop
    v_found := array(select u.priority from rota.unknown_priorities(p_queue, v_at.priorities) u(priority));
    exit when cardinality(v_found) = 0;
    v_save := true;
    select array_agg(k.priority order by k.priority desc), array_agg(k.run_at order by k.priority desc), array_agg(k.id order by k.priority desc)
    into v_at.priorities, v_at.run_ats, v_at.ids
    from (select * from unnest(v_at.priorities, v_at.run_ats, v_at.ids)
          union all select priority, v_beginning, 0 from unnest(v_found) priority) k(priority, run_at, id);
  end loop;
  if v_at.look_at_all_due_at <= rota.clock() then
    v_depth := make_interval(secs => 1e10);
  elsif v_at.look_due_at <= rota.clock() then
    v_depth := interval '100 seconds';
  end if;
  loop
    v_known := cardinality(v_refused);
    for id, claims, expires_at, start_recorded, v_last_priority, v_last_run_at, v_last_id, v_refusal in
      select c.id, c.claims, c.expires_at, c.start_recorded, c.priority, c.run_at, c.id, c.refusal
      from rota.job_claim_around(p_worker, p_release, p_types,
        array(select coalesce(t.lease, interval '2 minutes') from unnest(p_types) with ordinality n(name, place)
              left join rota.job_type t on t.name = rota.canonical_type(n.name) order by n.place),
        array(select coalesce(t.on_lost = 'dead' or t.max_attempts = 1, false) from unnest(p_types) with ordinality n(name, place)
              left join rota.job_type t on t.name = rota.canonical_type(n.name) order by n.place),
        array[p_queue], array[p_count - v_count], array[1], array[cardinality(v_at.priorities)], v_at.priorities, v_at.run_ats, v_at.ids,
        array_fill(v_depth, array[cardinality(v_at.priorities)]), p_count - v_count, v_refused, false) c
      order by c.priority desc nulls first, c.run_at, c.id
    loop
      if id is null then
        return;  -- the queue takes no claims now: that nothing came says nothing, and moves no frontier
      elsif v_refusal is null then
        v_count := v_count + 1;
        return next;
      else
        raise warning 'rota.claim: the database refuses job %, which stays as it is for now: %', id, rota.told(v_refusal, 500);
        v_refused := v_refused || id;
      end if;
    end loop;
    exit when v_count >= p_count or cardinality(v_refused) = v_known or v_known >= 1000;
  end loop;
  for k in 1 .. cardinality(v_at.priorities) loop
    if v_count < p_count or v_at.priorities[k] > v_last_priority then
      if v_at.run_ats[k] < rota.clock() then
        v_at.run_ats[k] := rota.clock();
        v_at.ids[k] := 0;
      end if;
    elsif v_at.priorities[k] = v_last_priority then
      -- More than it could take may lie behind the frontier: go on from there, or it would be passed over until the next look.
      v_save := v_save or v_last_run_at < v_at.run_ats[k];
      v_at.run_ats[k] := v_last_run_at;
      v_at.ids[k] := v_last_id;
    end if;
  end loop;
  if v_depth > interval '5 seconds' then
    v_save := true;
    v_pause := (clock_timestamp() - v_begun) * 100
      * (select count(*) from rota.worker w where w.stopped_at is null and w.heartbeat_at > rota.clock() - interval '1 minute');
    v_at.look_due_at := rota.clock() + greatest(interval '2 seconds', v_pause);
    if v_depth > interval '100 seconds' then
      v_at.look_at_all_due_at := rota.clock() + greatest(interval '5 seconds', v_pause);
    end if;
  end if;
  if v_save or v_count >= 50 or v_at.saved_at < rota.clock() - interval '5 seconds' then
    v_at.saved_at := rota.clock();
    insert into rota.frontier select v_at.* on conflict do nothing;
    if not found then
      update rota.frontier f
      set job_types = v_at.job_types, priorities = v_at.priorities, run_ats = v_at.run_ats, ids = v_at.ids, asked_at = v_at.asked_at,
        look_due_at = v_at.look_due_at, look_at_all_due_at = v_at.look_at_all_due_at, saved_at = v_at.saved_at
      where (f.worker, f.queue) = (select free.worker, free.queue from rota.frontier free
        where free.worker = p_worker and free.queue = p_queue for update skip locked);
    end if;
  end if;
end $$;

-- Claims up to n due jobs of a queue for a worker, by the leases of their types. A claimed job counts as begun: where that must be recorded, it is. One that
-- is past its expires_at is not handed out but dead.
create function rota.claim(queue text, types text[], worker text, n int default 1, release text default 'unknown')
returns table (id bigint, claims int, job_type text, payload jsonb, payload_version smallint, attempt int, max_attempts int, run_at timestamptz,
  expires_at timestamptz, locked_until timestamptz, origin_id bigint, idempotency_key text, meta jsonb, schedule text, scheduled_for timestamptz)
language plpgsql security definer set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_wrong text := case
    when coalesce(length(claim.queue), 0) not between 1 and 100 then 'queue must be 1 to 100 characters'
    when coalesce(cardinality(claim.types), 0) not between 1 and 1000 or array_position(claim.types, null) is not null then 'types must be 1 to 1000 names'
    when coalesce(length(claim.worker), 0) not between 1 and 200 then 'worker must be 1 to 200 characters'
    when claim.n is null or claim.n not between 1 and 1000 then 'n must be from 1 to 1000'
    when coalesce(length(claim.release), 0) not between 1 and 200 then 'release must be 1 to 200 characters' end;
  v_names text[];
  v_ids bigint[];
  v_begin bigint[];                              -- of these the ones whose start must be recorded, …
  v_claims int[];                                -- … and their claims
  v_late jsonb;
  v_copied text;
begin
  if v_wrong is not null then
    raise exception 'rota.claim: %', v_wrong using errcode = '22023';
  end if;
  v_copied := rota.copy_check();  -- where there is no other worker, nobody else looks
  if v_copied is not null then
    raise warning 'rota.claim: nothing is claimed, this is a restored copy: %', v_copied
      using hint = 'If it is to do the work of its jobs, say so: select rota.resume_copy()';
    return;
  end if;
  v_names := array(
    select unnest(claim.types) union select unnest(t.aliases) from rota.job_type t where t.name = any (claim.types) order by 1);
  perform rota.worker_seen(claim.worker, claim.queue, v_names, claim.release);
  for pass in 1 .. 20 loop
    select array_agg(c.id) filter (where c.is_late is not true), array_agg(c.id) filter (where c.is_late is not true and not c.start_recorded),
      array_agg(c.claims) filter (where c.is_late is not true and not c.start_recorded),
      jsonb_agg(jsonb_build_object('id', c.id, 'claims', c.claims, 'status', 'dead', 'charged', false, 'error_type', 'Expired', 'verdict', 'fatal',
        'verdict_rule', 'expired', 'message', format('not started before expires_at (%s): it was claimed too late',
          to_char(c.expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"')))) filter (where c.is_late)
    into v_ids, v_begin, v_claims, v_late
    from (select a.*, a.expires_at <= rota.clock() as is_late
          from rota.claim_ahead(claim.worker, claim.release, claim.queue, v_names, claim.n) a) c;
    exit when v_late is null;
    perform rota.partitions_ensure(0);
    perform rota.job_give_back(v_late, claim.release);
    exit when v_ids is not null;
  end loop;
  if v_begin is not null then
    perform rota.job_start(v_begin, v_claims);
  end if;
  return query
  select j.id, j.claims, rota.canonical_type(j.job_type), j.payload, j.payload_version, j.attempts, coalesce(j.max_attempts, t.max_attempts, 10), j.run_at,
    j.expires_at, j.locked_until, coalesce(j.origin_id, j.id), j.idempotency_key, j.meta, j.schedule, j.scheduled_for
  from rota.job j left join rota.job_type t on t.name = rota.canonical_type(j.job_type)
  where j.id = any (v_ids) order by j.priority desc, j.run_at, j.id;
end $$;

-- Renews a lease, and says whether somebody wants the job stopped. A row that another transaction has locked is not waited for: it stays held.
create function rota.renew(id bigint, claims int) returns table (locked_until timestamptz, cancel_requested boolean, cancel_reason text)
language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_job rota.job := rota.job_held(renew.id, renew.claims); begin
  perform rota.worker_seen(v_job.locked_by, v_job.queue, array[v_job.job_type], rota.worker_release(v_job.locked_by));
  perform rota.job_renew(array[renew.id], array[renew.claims], array[v_job.job_type],
    array[coalesce((select t.lease from rota.job_type t where t.name = rota.canonical_type(v_job.job_type)), interval '2 minutes')]);
  if not found then
    perform rota.lease_lost(renew.id, renew.claims);
  end if;
  v_job := rota.job_held(renew.id, renew.claims);
  return query select v_job.locked_until, v_job.cancel_requested_at is not null, v_job.cancel_reason;
end $$;

-- Ends a job that is done. Asked again for the same claim, as after a connection that broke, it says the same.
create function rota.succeed(id bigint, claims int, result jsonb default null) returns text
language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_job rota.job := rota.job_held(succeed.id, succeed.claims, false); v_kept jsonb := succeed.result; begin
  if v_job.id is null then
    if exists (select from rota.job_history h where h.id = succeed.id and h.claims = succeed.claims and h.status = 'succeeded') then
      return 'succeeded';
    end if;
    perform rota.lease_lost(succeed.id, succeed.claims);
  end if;
  if octet_length(v_kept::text) > 65536 then
    raise warning 'the result of job % is over 64 KiB and is not kept', succeed.id;
    v_kept := null;
  end if;
  perform rota.partitions_ensure(0);
  perform rota.job_finish(array[succeed.id], array[succeed.claims], null, array[extract(epoch from rota.clock() - v_job.started_at)::float8],
    array[v_kept::text], null, rota.worker_release(v_job.locked_by));
  if not found then
    perform rota.lease_lost(succeed.id, succeed.claims);
  end if;
  return 'succeeded';
end $$;

-- 64 bits, unsigned, as PostgreSQL has none.
create function rota.xor_shifted(p_bits numeric, p_by int) returns numeric language sql immutable parallel safe set search_path = rota, pg_temp as $$
  select case when mixed < 0 then mixed + 18446744073709551616 else mixed end
  from (select ((case when p_bits >= 9223372036854775808 then p_bits - 18446744073709551616 else p_bits end)::bigint
                # div(p_bits, 2::numeric ^ p_by)::bigint)::numeric as mixed) xored
$$;

-- The number from 0 to below 1 by which policy.py strays from the plan: the same for the same claim, in both languages.
create function rota.stray(p_id bigint, p_claims int) returns float8 language sql immutable parallel safe set search_path = rota, pg_temp as $$
  select (div(rota.xor_shifted(c.bits, 31), 2048) / 9007199254740992)::float8
  from (select (p_id::numeric * 11400714819323198485 + p_claims::numeric * 15111065706836454659) % 18446744073709551616 as bits) a
  cross join lateral (select rota.xor_shifted(a.bits, 30) * 13787848793156543929 % 18446744073709551616 as bits) b
  cross join lateral (select rota.xor_shifted(b.bits, 27) * 10723151780598845931 % 18446744073709551616 as bits) c
$$;

-- Ends an attempt that failed. By the plan stored with the type the job is tried again, strayed by up to a quarter, or dead. p_fatal: dead at once;
-- retry_after in place of the plan's wait. Asked again for the same claim it says the same.
create function rota.fail(id bigint, claims int, error_type text, message text default null, fatal boolean default false,
  retry_after interval default null, response_code int default null, stack text default null)
returns table (status text, run_at timestamptz) language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_job rota.job := rota.job_held(fail.id, fail.claims, false);
  v_kind text := coalesce(nullif(rota.told(fail.error_type, 200), ''), 'Error');
  v_type rota.job_type;
  v_gives_up boolean;
  v_delay_s float8;
begin
  if fail.retry_after not between interval '0' and interval '365 days' then
    raise exception 'rota.fail: retry_after must be from 0 to 365 days' using errcode = '22023';
  end if;
  if v_job.id is null then
    return query
    select a.outcome, a.next_run_at from rota.attempt a where a.job = fail.id and a.claim = fail.claims and a.verdict_rule like 'the worker said %';
    if found then
      return;
    end if;
    perform rota.lease_lost(fail.id, fail.claims);
  end if;
  select t.* into v_type from rota.job_type t where t.name = rota.canonical_type(v_job.job_type);
  v_gives_up := coalesce(fail.fatal, false) or v_job.attempts >= coalesce(v_job.max_attempts, v_type.max_attempts, 10);
  v_delay_s := coalesce(extract(epoch from fail.retry_after)::float8,
    extract(epoch from coalesce(v_type.retry_after[least(v_job.attempts, cardinality(v_type.retry_after))], interval '10 seconds'))::float8
    * (1 + 0.25 * (2 * rota.stray(fail.id, fail.claims) - 1)));
  perform rota.partitions_ensure(0);
  return query
  select r.status, r.run_at from rota.job_give_back(jsonb_build_array(jsonb_build_object(
    'id', fail.id, 'claims', fail.claims, 'status', case when v_gives_up then 'dead' else 'failed' end, 'charged', true,
    'delay_s', greatest(1, v_delay_s), 'ran_s', extract(epoch from rota.clock() - v_job.started_at), 'error_type', v_kind,
    'message', coalesce(nullif(rota.told(fail.message, 500), ''), v_kind), 'verdict', case when fail.fatal then 'fatal' else 'transient' end,
    'verdict_rule', case when fail.fatal then 'the worker said fatal' else 'the worker said so' end, 'response_code', fail.response_code,
    'stack', rota.told(fail.stack, 4096, true))), rota.worker_release(v_job.locked_by)) r;
  if not found then
    perform rota.lease_lost(fail.id, fail.claims);
  end if;
end $$;

-- Puts a job back, uncharged: p_delay_s seconds from now, or as it stood where that is NULL. What was called off meanwhile is cancelled.
create function rota.job_put_back(p_id bigint, p_claims int, p_delay_s float8) returns table (status text, run_at timestamptz)
language plpgsql set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_job rota.job := rota.job_held(p_id, p_claims); begin
  perform rota.partitions_ensure(0);
  return query
  select r.status, r.run_at from rota.job_give_back(jsonb_build_array(jsonb_build_object('id', p_id, 'claims', p_claims, 'status', 'queued', 'charged', false,
    'delay_s', p_delay_s, 'ran_s', extract(epoch from rota.clock() - v_job.started_at))), rota.worker_release(v_job.locked_by)) r;
  if not found then
    perform rota.lease_lost(p_id, p_claims);
  end if;
end $$;

-- Puts a running job off, by a second at least; the attempt does not count.
create function rota.snooze(id bigint, claims int, after interval) returns table (status text, run_at timestamptz)
language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  if snooze.after is null or snooze.after not between interval '0' and interval '36525 days' then
    raise exception 'rota.snooze: after must be from 0 to a hundred years' using errcode = '22023';
  end if;
  return query select b.status, b.run_at from rota.job_put_back(snooze.id, snooze.claims, greatest(1, extract(epoch from snooze.after)::float8)) b;
end $$;

-- Gives a running job back, for another worker to take at once; the attempt does not count.
create function rota.hand_back(id bigint, claims int) returns table (status text, run_at timestamptz)
language sql security definer set search_path = rota, pg_temp as $$
  select b.status, b.run_at from rota.job_put_back(id, claims, null) b
$$;

-- Says how far a running job has come.
create function rota.progress(id bigint, claims int, done float8, total float8 default null, note text default null) returns void
language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  perform rota.job_held(progress.id, progress.claims);
  if progress.done is null or progress.done not between 0 and 9007199254740992 or progress.total not between 0 and 9007199254740992 then
    raise exception 'rota.progress: done and total must be from 0 to 2^53' using errcode = '22023';
  end if;
  perform rota.job_progress(array[progress.id], array[progress.claims],
    array[jsonb_build_object('done', progress.done, 'total', progress.total, 'note', nullif(rota.told(progress.note, 200), ''))::text]);
  if not found then
    perform rota.lease_lost(progress.id, progress.claims);
  end if;
end $$;

-- Says that a worker in SQL is gone, so that nobody misses it.
create function rota.leave(worker text) returns void language sql security definer set search_path = rota, pg_temp as $$
  update rota.worker w set stopped_at = rota.clock() where w.name = leave.worker and w.version = 'sql' and w.stopped_at is null
$$;

revoke execute on function rota.declare(text, text, int, int, interval, interval[], interval, interval, text, text, interval, text[], int, text),
  rota.enqueue(text, jsonb, text, int, timestamptz, timestamptz, int, text, jsonb, int), rota.claim(text, text[], text, int, text), rota.renew(bigint, int),
  rota.succeed(bigint, int, jsonb), rota.fail(bigint, int, text, text, boolean, interval, int, text), rota.snooze(bigint, int, interval),
  rota.hand_back(bigint, int), rota.progress(bigint, int, float8, float8, text), rota.leave(text) from public;

-- What job_claim does, for when that was refused: a trigger or a constraint of the user's will not have one of the rows. Leaves out p_refused, and takes the
-- others together while nothing is refused, else in halves, down to the row, and in larger parts again. A row that is refused comes back as it is, with
-- what the database says; of its other columns only id, queue, priority and run_at mean anything. p_alone: nothing else is in this transaction.
create function rota.job_claim_around(
  p_worker text, p_release text, p_types text[], p_leases interval[], p_records boolean[], p_queues text[], p_slots int[], p_lo int[], p_hi int[],
  p_priorities smallint[], p_after_run_at timestamptz[], p_after_id bigint[], p_depths interval[], p_limit int, p_refused bigint[], p_alone boolean)
returns table (id bigint, origin_id bigint, queue text, job_type text, payload text, payload_version smallint, priority smallint, run_at timestamptz,
  expires_at timestamptz, attempts int, max_attempts int, claims int, idempotency_key text, meta text, created_at timestamptz, start_recorded boolean,
  losses smallint, suspected boolean, schedule text, scheduled_for timestamptz, refusal text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare
  v_paused text[] := case
    when exists (select from rota.site s
                 where s.copied is not null or s.paused_at is not null and (s.paused_until is null or s.paused_until > rota.clock())) then p_queues
    else array(select p.name from rota.queue p
               where p.name = any (p_queues) and p.paused_at is not null and (p.paused_until is null or p.paused_until > rota.clock())) end;
  v_ids bigint[] := array(
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
          and (b.misfits is null or not p_release = any (b.misfits) or b.run_at < rota.clock() - interval '1 hour')
          and b.id <> all (p_refused)
        order by b.run_at, b.id limit q.slots for update skip locked) branch
      limit q.slots) picked
    where q.queue <> all (v_paused)
    limit p_limit);
  v_from int := 1;
  v_size int := cardinality(v_ids);
  v_taken bigint[];
begin
  if p_alone then
    set constraints all immediate;  -- what is deferred would refuse all of them, at the end
  end if;
  while v_from <= cardinality(v_ids) loop
    begin
      with taken as (
        update rota.job j
        set status = 'running', locked_by = p_worker, locked_until = rota.clock() + p_leases[array_position(p_types, j.job_type)],
          attempts = j.attempts + 1, claims = j.claims + 1, started_at = rota.clock(),
          start_recorded = case when j.losses > 0 or j.max_attempts = 1 or p_records[array_position(p_types, j.job_type)] then false end
        where j.id = any (v_ids[v_from : v_from + v_size - 1])
        returning j.id)
      select v_taken || array_agg(t.id) into v_taken from taken t;
      v_from := v_from + v_size;
      v_size := v_size * 2;
    exception when others or assert_failure then
      if sqlstate ~ '^(08|57|25006|53|58|28|3D|40|55P03)' then
        raise;  -- the whole server's trouble, or somebody is in the way: no row's fault
      elsif v_size > 1 then
        v_size := (v_size + 1) / 2;
      else
        refusal := sqlstate || ': ' || sqlerrm;
        select j.id, j.queue, j.priority, j.run_at into id, queue, priority, run_at from rota.job j where j.id = v_ids[v_from];
        return next;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
  return query
  select j.id, coalesce(j.origin_id, j.id), j.queue, j.job_type, j.payload::text, j.payload_version, j.priority, j.run_at,
    j.expires_at, j.attempts, j.max_attempts, j.claims, j.idempotency_key, j.meta::text, j.created_at, j.start_recorded, j.losses,
    case when j.losses > 0 and j.error_type = 'LeaseExpired' then true end, j.schedule, j.scheduled_for, null
  from rota.job j where j.id = any (v_taken);
  id := null;
  refusal := null;
  foreach queue in array v_paused loop
    return next;
  end loop;
end $$;
