-- Claims up to n due jobs of a queue for a worker, by the leases of their types. A claimed job
-- counts as begun; a start that must be recorded is recorded here. A job past its expires_at is not
-- returned: it becomes dead or, by its type's on_expired, is dropped.
--
-- `after` is the `seen` of the previous claim's rows: the search continues there. With `after`, a
-- claim that finds nothing returns one row that has only `seen`. Without `after`, or with '{}', and
-- every 10 s, the claim searches the queue from its beginning. Otherwise it looks 5 s behind, for
-- jobs that committed late, and further behind on request.
-- Locks: the rows it returns, with SKIP LOCKED; index job_ready. The worker's row, not waited for.
-- Keeps: M15, a program that can run SQL can be a worker; M30; M31.
create or replace function {schema}.claim(
  queue text,
  types text[],
  worker text,
  n int default 1,
  release text default 'unknown',
  after jsonb default null
)
returns table (
  id bigint,
  claims int,
  job_type text,
  payload jsonb,
  payload_version smallint,
  attempt int,
  max_attempts int,
  timeout interval,
  run_at timestamptz,
  expires_at timestamptz,
  locked_until timestamptz,
  origin_id bigint,
  idempotency_key text,
  meta jsonb,
  schedule text,
  scheduled_for timestamptz,
  seen jsonb
)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_wrong text := case
    when coalesce(length(claim.queue), 0) not between 1 and 100
      then 'queue must be 1 to 100 characters'
    when coalesce(cardinality(claim.types), 0) not between 1 and 1000
      or array_position(claim.types, null) is not null
      then 'types must be 1 to 1000 names'
    when coalesce(length(claim.worker), 0) not between 1 and 200
      then 'worker must be 1 to 200 characters'
    when claim.n is null or claim.n not between 1 and 1000
      then 'n must be from 1 to 1000'
    when coalesce(length(claim.release), 0) not between 1 and 200
      then 'release must be 1 to 200 characters'
  end;
  v_copied text;
  v_names text[];
  v_seen jsonb;
  v_claimed bigint[];
  v_ids bigint[];                                -- claimed jobs before their expires_at
  v_begin bigint[];                              -- jobs whose start must be recorded
  v_begin_claims int[];                          -- parallel to v_begin
begin
  if v_wrong is not null then
    raise exception 'rota.claim: %', v_wrong using errcode = '22023';
  end if;
  v_copied := {schema}.copy_check();  -- the only check where no worker in Python runs
  if v_copied is not null then
    raise warning 'rota.claim: nothing is claimed, because this is a restored copy: %', v_copied
      using hint = 'To let this copy run its jobs: select rota.resume_copy()';
    return;
  end if;
  v_names := array(
    select unnest(claim.types)
    union
    select unnest(t.aliases)
    from {schema}.job_type t
    where t.name = any (claim.types)
    order by 1
  );
  v_seen := {schema}.claim_position(claim.queue, v_names, claim.after);
  perform {schema}.sql_worker_seen(claim.worker, claim.queue, v_names, claim.release);
  for pass in 1 .. 20 loop
    select c.ids, c.seen into v_claimed, v_seen
    from {schema}.claim_ahead(claim.worker, claim.release, claim.queue, v_names, claim.n, v_seen) c;
    v_ids := {schema}.claims_expire(v_claimed, claim.release);
    exit when v_ids <> '{}' or v_claimed = '{}';
  end loop;
  select array_agg(j.id), array_agg(j.claims) into v_begin, v_begin_claims
  from {schema}.job j
  where j.id = any (v_ids) and not j.start_recorded;
  if v_begin is not null then
    perform {schema}.job_start(
      v_begin, v_begin_claims, array_fill(false, array[cardinality(v_begin)])
    );
  end if;
  return query
  select
    j.id, j.claims,
    {schema}.canonical_type(j.job_type),
    j.payload, j.payload_version, j.attempts,
    coalesce(j.max_attempts, t.max_attempts, 10),
    coalesce(j.timeout, t.timeout, interval '5 minutes'),
    j.run_at, j.expires_at, j.locked_until,
    coalesce(j.origin_id, j.id),
    j.idempotency_key, j.meta, j.schedule, j.scheduled_for,
    v_seen
  from {schema}.job j
  left join {schema}.job_type t on t.name = {schema}.canonical_type(j.job_type)
  where j.id = any (v_ids)
  order by j.priority desc, j.run_at, j.id;
  if not found and claim.after is not null then
    seen := v_seen;
    return next;
  end if;
end $$;
revoke execute on function {schema}.claim(text, text[], text, int, text, jsonb) from public;
