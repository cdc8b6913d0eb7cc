-- Declares job types: an array of objects with the columns of job_type, durations in seconds. Keys
-- that were taken under a former name move to the new name. Where key_scope becomes 'pending', the
-- keys of jobs that have started, are dead or over are free. A cap (concurrency) holds at once; of
-- one that was raised or removed, jobs that waited for it compete again.
-- Locks: the rows of the types, in the order of their names; the rows of keys that move or become
--   free; then as caps_release.
-- Keeps: M15, a plain INSERT takes what the type declares; M51, with key_scope 'pending' no change
--   is joined to a job that has begun, also not to one that began before the type said so.
create or replace function {schema}.job_type_declare(p_types jsonb, p_release text)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
  v_pending text[] := array(
    select t.name
    from {schema}.job_type t
    where t.key_scope = 'pending'
  );
  v_capped jsonb := (
    select jsonb_object_agg(t.name, t.concurrency)
    from {schema}.job_type t
    where t.concurrency is not null
  );
  v_changed text[];
begin
  insert into {schema}.job_type as t (
    name, aliases, queue, priority, max_attempts,
    timeout, lease, expires, key_ttl,
    key_arguments, on_duplicate, key_scope,
    group_arguments, lane_capacity, on_retry, on_dead, concurrency,
    history, on_lost, on_expired, version, breaker, breaker_has_keys,
    retry_after, release
  )
  select
    d.name, d.aliases, d.queue, d.priority, d.max_attempts,
    make_interval(secs => d.timeout_s), make_interval(secs => d.lease_s),
    make_interval(secs => d.expires_s), make_interval(secs => d.key_ttl_s),
    d.key_arguments, coalesce(d.on_duplicate, 'join'), coalesce(d.key_scope, 'ttl'),
    d.group_arguments, d.lane_capacity,
    coalesce(d.on_retry, 'hold'), coalesce(d.on_dead, 'free'), d.concurrency,
    d.history, d.on_lost, d.on_expired, d.version, d.breaker, d.breaker_has_keys,
    array(
      select make_interval(secs => s)
      from unnest(d.retry_after_s) with ordinality u(s, n)
      order by n
    ),
    p_release
  from jsonb_to_recordset(p_types) d(
    name text, aliases text[], queue text, priority smallint, max_attempts int,
    timeout_s float8, lease_s float8, expires_s float8, key_ttl_s float8,
    key_arguments text[], on_duplicate text, key_scope text,
    group_arguments text[], lane_capacity smallint,
    on_retry text, on_dead text, concurrency int,
    history text, on_lost text, on_expired text, version smallint,
    breaker text, breaker_has_keys boolean,
    retry_after_s float8[]
  )
  order by d.name  -- ten workers that start at once take the locks in one order
  on conflict (name) do update
  set
    aliases = excluded.aliases,
    queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    timeout = excluded.timeout,
    lease = excluded.lease,
    expires = excluded.expires,
    key_ttl = excluded.key_ttl,
    key_arguments = excluded.key_arguments,
    on_duplicate = excluded.on_duplicate,
    key_scope = excluded.key_scope,
    group_arguments = excluded.group_arguments,
    lane_capacity = excluded.lane_capacity,
    on_retry = excluded.on_retry,
    on_dead = excluded.on_dead,
    concurrency = excluded.concurrency,
    history = excluded.history,
    on_lost = excluded.on_lost,
    on_expired = excluded.on_expired,
    breaker = excluded.breaker,
    breaker_has_keys = excluded.breaker_has_keys,
    version = excluded.version,
    retry_after = excluded.retry_after,
    release = excluded.release,
    declared_at = {schema}.clock();
  get diagnostics v_count = row_count;
  -- Two former names may have the same key: one of the two moves. The other stays where it is until
  -- the first is free.
  update {schema}.idempotency i
  set job_type = moved.name
  from (
    select distinct on (t.name, k.key) t.name, k.job_type, k.key
    from {schema}.job_type t
    join {schema}.idempotency k
      on k.job_type = any (t.aliases)
      and {schema}.canonical_type(k.job_type) = t.name
    where t.aliases <> '{}'
      and not exists (
        select from {schema}.idempotency taken
        where taken.job_type = t.name
          and taken.key = k.key
      )
    order by t.name, k.key, k.expires_at desc nulls first, k.job_type
  ) moved
  where i.job_type = moved.job_type
    and i.key = moved.key;
  delete from {schema}.idempotency i
  using {schema}.job_type t
  where t.key_scope = 'pending'
    and t.name <> all (v_pending)
    and i.job_type = any (array_append(t.aliases, t.name))
    and not exists (
      select from {schema}.job j
      where j.id = i.job
        and j.status in ('queued', 'waiting')
        and j.claims = 0
    );
  v_changed := array(
    select 'type ' || t.name
    from jsonb_to_recordset(p_types) d(name text)
    join {schema}.job_type t on t.name = d.name
    where t.concurrency is distinct from (v_capped ->> t.name)::int
    order by t.name
  );
  if v_changed <> '{}' then
    perform {schema}.caps_release(v_changed);
  end if;
  return v_count;
end $$;
