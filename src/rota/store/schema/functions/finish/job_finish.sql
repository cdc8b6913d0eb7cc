-- Moves jobs that have ended to history; no other statement does. p_statuses says how each ended
-- (succeeded, cancelled, or dead with a resolution; NULL: all succeeded). A cancelled job gets the
-- reason as its error; the last attempt's error stays in `attempt`. p_ran_us: microseconds since
-- the handler of a running job began; NULL: it did not begin, and a cancelled job is not charged.
-- Returns the jobs whose claim was still held.
--
-- A success holds the key until it expires, with key_scope 'live' not at all. Any other end frees
-- the key, unless a requeue has taken it over. A success with history = 'failures' leaves no row.
-- Locks: the rows it is given, through the primary key; index job_pkey.
-- Keeps: M32, a job is finished by its current claim only; M51, what becomes of its key.
create or replace function {schema}.job_finish(
  p_ids bigint[],
  p_claims int[],
  p_statuses text[],
  p_ran_us bigint[],
  p_results text[],
  p_reasons text[],
  p_resolutions jsonb[],
  p_release text
)
returns setof bigint
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  with over as (
    delete from {schema}.job j
    where j.id = any (p_ids)
      and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    returning j.*
  ),
  ended as (
    select
      v.id, v.claims,
      coalesce(v.status, 'succeeded') as status,
      v.ran_us, v.result, v.reason, v.resolution
    from unnest(
      p_ids, p_claims,
      p_statuses,
      p_ran_us, p_results, p_reasons, p_resolutions
    ) v(
      id, claims,
      status,
      ran_us, result, reason, resolution
    )
  ),
  keyed as materialized (
    select o.id, o.job_type, o.idempotency_key, e.status
    from over o
    join ended e on e.id = o.id and e.claims = o.claims
    where o.idempotency_key is not null
  ),
  key_kept as (
    update {schema}.idempotency i
    set expires_at = {schema}.clock() + coalesce(
      (
        select case when t.key_scope = 'live' then interval '0' else t.key_ttl end
        from {schema}.job_type t
        where t.name = i.job_type
      ),
      interval '90 days'
    )
    from keyed k
    where k.status = 'succeeded'
      and i.job_type in (k.job_type, {schema}.canonical_type(k.job_type))
      and i.key = k.idempotency_key
      and i.job = k.id
  ),
  key_freed as (
    delete from {schema}.idempotency i
    using keyed k
    where k.status <> 'succeeded'
      and i.job_type in (k.job_type, {schema}.canonical_type(k.job_type))
      and i.key = k.idempotency_key
      and i.job = k.id
  ),
  -- A dead job was counted when it died.
  counted as (
    insert into {schema}.batch_delta (batch, succeeded, cancelled)
    select
      o.batch,
      count(*) filter (where e.status = 'succeeded'),
      count(*) filter (where e.status = 'cancelled')
    from over o
    join ended e on e.id = o.id and e.claims = o.claims
    where o.batch is not null
      and e.status <> 'dead'
    group by o.batch
  ),
  -- The names, former ones too, of types with history = 'failures': mostly an empty index.
  unkept as materialized (
    select n.name
    from {schema}.job_type t
    cross join unnest(t.aliases || t.name) n(name)
    where t.history = 'failures'
      and {schema}.canonical_type(n.name) = t.name
  ),
  kept as (
    insert into {schema}.job_history (
      id, origin_id, status,
      {content},
      run_at, expires_at, max_attempts, claims, locked_by, losses,
      cancel_requested_at, progress, mismatched_releases,
      idempotency_key, meta, created_at, failed_at, group_capacity, batch,
      attempts,
      cancel_reason, last_error, error_type, response_code, verdict, verdict_rule,
      updated_at, started_at, finished_at, result, release, resolution
    )
    select
      o.id, o.origin_id, e.status,
      {o.content},
      o.run_at, o.expires_at, o.max_attempts, o.claims, o.locked_by, o.losses,
      o.cancel_requested_at, o.progress, o.mismatched_releases,
      o.idempotency_key, o.meta, o.created_at, o.failed_at, o.group_capacity, o.batch,
      case
        when e.status = 'cancelled' and o.status = 'running' and e.ran_us is null
          then o.attempts - 1
        else o.attempts
      end,
      coalesce(o.cancel_reason, e.reason),
      coalesce(e.reason, o.last_error),
      case when e.reason is null then o.error_type end,
      case when e.reason is null then o.response_code end,
      case when e.reason is null then o.verdict end,
      case when e.reason is null then o.verdict_rule end,
      case when e.status = 'dead' then o.updated_at else {schema}.clock() end,
      case
        when o.status = 'running' then {schema}.clock() - e.ran_us * interval '1 microsecond'
        else o.started_at
      end,
      {schema}.clock(), e.result::jsonb, p_release, e.resolution
    from over o
    join ended e on e.id = o.id and e.claims = o.claims
    where e.status <> 'succeeded'
      or o.job_type not in (select u.name from unkept u)
  )
  select o.id
  from over o;
end $$;
