-- Why: a plain INSERT from any language is a valid enqueue, so what makes it one happens here and not in a client: left-out columns, idempotency
-- keys, and the bell that wakes a waiting worker. Oldest release that can live with this: 0.1.0.

-- Fires only for rows that need it. A row that names queue and priority, as our own client does, is taken as complete.
-- SECURITY DEFINER: a producer needs INSERT on job and nothing else.
create function rota.job_fill() returns trigger language plpgsql security definer set search_path = rota, pg_temp as $$
declare
  v_name text := rota.canonical_type(new.job_type);
  v_type rota.job_type;
  v_aliases text[];
begin
  if new.run_at < rota.clock() then
    new.run_at := rota.clock();
  end if;
  if new.queue is null or new.priority is null then
    select * into v_type from rota.job_type where name = v_name;
    new.queue := coalesce(new.queue, v_type.queue, 'default');
    new.priority := coalesce(new.priority, v_type.priority, 0);
    new.expires_at := coalesce(new.expires_at, new.run_at + v_type.expires);
  end if;
  if new.idempotency_key is not null then
    -- A key that was taken under a former name, and committed while the new one was being declared, counts as well.
    select t.aliases into v_aliases from rota.job_type t where t.name = v_name and t.aliases <> '{}';
    if v_aliases is not null and exists (
      select from rota.idempotency i
      where i.job_type = any (v_aliases) and i.key = new.idempotency_key and (i.expires_at is null or i.expires_at > rota.clock())) then
      return null;
    end if;
    loop
      -- DO NOTHING takes no lock on the row that is there, so a producer's open transaction never delays the end of that job.
      insert into rota.idempotency (job_type, key, job) values (v_name, new.idempotency_key, new.id) on conflict do nothing;
      exit when found;
      update rota.idempotency set job = new.id, expires_at = null
      where job_type = v_name and key = new.idempotency_key and expires_at <= rota.clock();
      exit when found;
      if exists (select from rota.idempotency i where i.job_type = v_name and i.key = new.idempotency_key) then
        return null;  -- the key is taken: INSERT 0 0
      end if;  -- else retention forgot it just then, or it was freed
    end loop;
  end if;
  return new;
end $$;
create trigger job_fill before insert on rota.job for each row
when (new.queue is null or new.priority is null or new.idempotency_key is not null or new.run_at < rota.clock())
execute function rota.job_fill();

-- A commit that carries a NOTIFY takes a database-wide lock until it is flushed, so the bell rings only for rows that are due, and only while a
-- worker waits for their queue. The channel is named like the schema, its payload is the queue.
create function rota.job_ring() returns trigger language plpgsql security definer set search_path = rota, pg_temp as $$
begin
  if exists (select from rota.queue q where q.bell_until > rota.clock()) then
    perform pg_notify(tg_table_schema, due.queue)
    from (select distinct f.queue from fresh f join rota.queue q on q.name = f.queue
          where f.status = 'queued' and f.run_at <= rota.clock() and q.bell_until > rota.clock()
            and (q.paused_at is null or q.paused_until <= rota.clock())) due;  -- of a paused one nobody may claim
  end if;
  return null;
end $$;
create trigger job_ring after insert on rota.job referencing new table as fresh for each statement execute function rota.job_ring();

-- Declares job types: an array of objects with the columns of job_type, durations in seconds. Keys that were taken under a former name move along.
create function rota.job_type_declare(p_types jsonb, p_release text) returns int language plpgsql set search_path = rota, pg_temp as $$
declare v_count int; begin
  insert into rota.job_type as t (name, aliases, queue, priority, max_attempts, timeout, lease, expires, key_ttl, history, on_lost, version, retry_after,
    retry_words, release)
  select d.name, d.aliases, d.queue, d.priority, d.max_attempts, make_interval(secs => d.timeout_s), make_interval(secs => d.lease_s),
    make_interval(secs => d.expires_s), make_interval(secs => d.key_ttl_s), d.history, d.on_lost, d.version,
    array(select make_interval(secs => s) from unnest(d.retry_after_s) with ordinality u(s, n) order by n), d.retry_words, p_release
  from jsonb_to_recordset(p_types) d(name text, aliases text[], queue text, priority smallint, max_attempts int, timeout_s float8, lease_s float8,
    expires_s float8, key_ttl_s float8, history text, on_lost text, version smallint, retry_after_s float8[], retry_words text)
  order by d.name  -- ten workers that start at once lock in one order
  on conflict (name) do update set aliases = excluded.aliases, queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, lease = excluded.lease, expires = excluded.expires, key_ttl = excluded.key_ttl, history = excluded.history, on_lost = excluded.on_lost,
    version = excluded.version,
    retry_after = excluded.retry_after, retry_words = excluded.retry_words, release = excluded.release, declared_at = rota.clock();
  get diagnostics v_count = row_count;
  -- Two former names may share a key: one of them moves, the other stays where it is and is not looked for any more.
  update rota.idempotency i set job_type = moved.name
  from (select distinct on (t.name, k.key) t.name, k.job_type, k.key
        from rota.job_type t
        join rota.idempotency k on k.job_type = any (t.aliases) and rota.canonical_type(k.job_type) = t.name
        where t.aliases <> '{}' and not exists (select from rota.idempotency taken where taken.job_type = t.name and taken.key = k.key)
        order by t.name, k.key, k.expires_at desc nulls first, k.job_type) moved
  where i.job_type = moved.job_type and i.key = moved.key;
  return v_count;
end $$;

-- Ids for a bulk, ascending. SECURITY DEFINER: a producer needs no right on the sequence.
create function rota.job_reserve(p_count int) returns setof bigint language sql volatile security definer set search_path = rota, pg_temp as $$
  select nextval(pg_get_serial_sequence('rota.job', 'id')) from generate_series(1, p_count)
$$;

-- Who holds each key. SECURITY DEFINER: the caller of a refused job learns the first one's id and status and nothing else. A key whose job has left no
-- row any more belongs to one that succeeded, for cancelling frees the key.
create function rota.key_holders(p_job_types text[], p_keys text[]) returns table (place bigint, id bigint, status text)
language sql stable security definer set enable_seqscan = off set search_path = rota, pg_temp as $$
  select asked.n, held.job,
    coalesce((select j.status from rota.job j where j.id = held.job), (select h.status from rota.job_history h where h.id = held.job limit 1), 'succeeded')
  from unnest(p_job_types, p_keys) with ordinality asked(job_type, key, n)
  cross join lateral (select rota.canonical_type(asked.job_type) as name) called
  left join rota.job_type t on t.name = called.name
  cross join lateral (
    -- One array, not "or": before 18 an index whose first column is not fixed is read from end to end for each key.
    select i.job from rota.idempotency i
    where i.job_type = any (array_append(t.aliases, called.name)) and i.key = asked.key
    order by i.job_type <> called.name limit 1) held
$$;

-- What is wrong with a payload or a meta that somebody gives a function, in words; NULL: nothing. The constraints of the table are the last guard, and
-- name themselves only. Not looked at by a plain INSERT.
create function rota.json_wrong(p_name text, p_value jsonb) returns text language sql stable parallel safe set search_path = rota, pg_temp as $$
  select case
    when jsonb_typeof(p_value) <> 'object' then format('%s must be a JSON object, as in {"user_id": 42}, not %s', p_name, jsonb_typeof(p_value))
    when octet_length(p_value::text) > rota.payload_bytes_max() then format(
      '%s is %s bytes, over the limit of %s: store the data elsewhere and pass a reference, such as its id', p_name, octet_length(p_value::text),
      rota.payload_bytes_max()) end
$$;

-- The same of all that is given for a job.
create function rota.job_wrong(p_job_type text, p_payload jsonb, p_queue text, p_priority int, p_run_at timestamptz, p_expires_at timestamptz,
  p_max_attempts int, p_idempotency_key text, p_meta jsonb, p_payload_version int)
returns text language sql stable parallel safe set search_path = rota, pg_temp as $$
  select case
    when coalesce(length(p_job_type), 0) not between 1 and 200
      then format('job_type must be 1 to 200 characters, not %s', coalesce(length(p_job_type)::text, 'NULL'))
    when length(p_queue) not between 1 and 100
      then format('queue must be 1 to 100 characters, not %s; leave it out for the type''s', length(p_queue))
    when p_priority not between -100 and 100 then format('priority must be from -100 to 100, not %s', p_priority)
    when p_run_at >= '9000-01-01 00:00:00+00' then format('run_at must lie before the year 9000, not at %s', p_run_at)
    when not (p_expires_at >= '1970-01-01 00:00:00+00' and p_expires_at < '9200-01-01 00:00:00+00')
      then format('expires_at must lie from the year 1970 to before 9200, not at %s; leave it out for never', p_expires_at)
    when p_max_attempts not between 1 and 10000 then format('max_attempts must be from 1 to 10000, not %s', p_max_attempts)
    when length(p_idempotency_key) not between 1 and 255
      then format('idempotency_key must be 1 to 255 characters, not %s; hash a longer one', length(p_idempotency_key))
    when p_payload_version not between 1 and 32767 then format('payload_version must be from 1 to 32767, not %s', p_payload_version)
    else coalesce(rota.json_wrong('payload', p_payload), rota.json_wrong('meta', p_meta)) end
$$;
