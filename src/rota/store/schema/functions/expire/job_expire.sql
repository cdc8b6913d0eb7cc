-- Ends waiting jobs past their expires_at, uncharged: they become dead, or cancelled if their type
-- has on_expired = 'drop', and say what held them up. It reads the index of expiries from (p_after,
-- p_after_id) on, not the entries of all earlier expiries. The fence stays, because no worker holds
-- such a job. A key that was held until the start is free. p_only: only these jobs; NULL: all.
create or replace function {schema}.job_expire(
  p_worker text,
  p_after timestamptz,
  p_after_id bigint,
  p_limit int,
  p_only bigint[] default null
)
returns table (
  id bigint,
  job_type text,
  claims int,
  attempt int,
  expires_at timestamptz,
  message text,
  status text
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_mergejoin = off set enable_hashjoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_room text;
  v_rooms text[];
  v_dead bigint[];
begin
  perform {schema}.wait_briefly(p_only);
  for id, job_type, claims, attempt, expires_at, message, status, v_room in
  with late as materialized (
    select j as job, j.id
    from {schema}.job j
    where j.expires_at is not null
      and j.status in ('queued', 'failed', 'waiting')
      and (j.expires_at, j.id) > (p_after, p_after_id)
      and j.expires_at <= {schema}.clock()
      and (p_only is null or j.id = any (p_only))
    order by j.expires_at, j.id
    limit p_limit
    for update skip locked
  ),
  decided as materialized (
    select
      l.id, l.job,
      {schema}.expiry_message(l.job, {schema}.expiry_reason(l.job)) as message,
      coalesce(
        (
          select t.on_expired = 'drop'
          from {schema}.job_type t
          where t.name = {schema}.canonical_type((l.job).job_type)
        ),
        false
      ) as drops,
      case
        when (l.job).in_lane
          then {schema}.lane_keeps((l.job).job_type, 'dead'::text, null::float8, null::text)
      end as halts
    from late l
  ),
  expired as (
    update {schema}.job j
    set
      status = 'dead',
      last_error = d.message,
      error_type = 'Expired',
      response_code = null,
      verdict = 'fatal',
      verdict_rule = 'expired',
      failed_at = {schema}.clock(),
      in_lane = case when d.halts then true when j.group_key is not null then false end,
      waits_for = case when d.halts then 'person' end,
      waits_since = case when d.halts then {schema}.clock() end,
      updated_at = {schema}.clock()
    from decided d
    where j.id = d.id
      and not d.drops
    returning
      j.id, j.job_type, j.claims, j.attempts + 1 as attempt, j.expires_at, d.message, j.group_key
  ),
  recorded as (
    -- The attempt that never began is recorded, as for a job that was claimed too late.
    insert into {schema}.attempt (
      job, claim, attempt, job_type, worker, finished_at, outcome,
      error_type, message, verdict, verdict_rule
    )
    select
      e.id, e.claims, e.attempt, e.job_type, p_worker, {schema}.clock(), 'dead',
      'Expired', e.message, 'fatal', 'expired'
    from expired e
  ),
  dropped as materialized (
    select finished.id
    from (
      select
        array_agg(d.id) as ids,
        array_agg((d.job).claims) as claims,
        array_agg('cancelled'::text) as statuses,
        array_agg('expired: ' || d.message) as reasons
      from decided d
      where d.drops
      having count(*) > 0
    ) a
    cross join lateral {schema}.job_finish(
      a.ids, a.claims, a.statuses,
      null::bigint[], null::text[],
      a.reasons, null::jsonb[], null::text
    ) finished(id)
  ),
  freed as materialized (
    select {schema}.keys_give_up(array(select e.id from expired e))
  )
  select e.id, e.job_type, e.claims, e.attempt, e.expires_at, e.message, 'dead',
    'group ' || e.group_key
  from expired e
  cross join freed
  union all
  select
    d.id, (d.job).job_type, (d.job).claims, (d.job).attempts + 1, (d.job).expires_at,
    'expired: ' || d.message,
    'cancelled',
    'group ' || (d.job).group_key
  from dropped x
  join decided d on d.id = x.id
  loop
    return next;
    if status = 'dead' then
      v_dead := v_dead || id;
    end if;
    if v_room is not null then
      v_rooms := v_rooms || v_room;
    end if;
  end loop;
  if v_dead is not null then
    perform {schema}.batches_count_dead(v_dead, 1);
  end if;
  perform {schema}.rooms_advance(v_rooms, 200);
end $$;
