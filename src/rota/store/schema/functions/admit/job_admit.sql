-- Decides which of the jobs that a claim has picked may run, by their lanes, breakers, the caps of
-- types and of queues, and rate limits, in this order. The rest are parked; jobs whose lane or cap
-- another transaction holds for long stay as they are. Limits give starts up to p_ahead before
-- their slots; NULL: limits and breakers are not asked. Returns the jobs that may run, the types
-- (former names too) and queues whose jobs count in a cap, and the starts, as in claimed_job.
-- Locks: stripes, after the rows, which the caller locked; then as breakers_admit and limits_admit.
-- Keeps: M60, M61, M62, M63; M30, decided in statements that begin after the stripes are locked.
create or replace function {schema}.job_admit(p_ids bigint[], p_ahead interval)
returns table (ids bigint[], capped_types text[], capped_queues text[], starts jsonb)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_limits text[] := array(
    select distinct a.room
    from {schema}.limits_asked(case when p_ahead is not null then p_ids end) a
  );
  v_missing text[];
  v_trials bigint[];
begin
  ids := p_ids;
  select
    array_agg(distinct c.job_type) filter (where c.type_cap is not null),
    array_agg(distinct c.queue) filter (where c.queue_cap is not null)
  into capped_types, capped_queues
  from {schema}.job_caps(p_ids) c;
  v_missing := {schema}.stripes_lock(
    array(
      select 'group ' || j.group_key
      from {schema}.job j
      where j.id = any (p_ids)
        and j.group_key is not null
        and j.in_lane is null
      union
      select k.cap
      from {schema}.job_caps(p_ids) c
      cross join lateral (values (c.type_cap), (c.queue_cap)) k(cap)
      where k.cap is not null
    ) || v_limits,
    200
  );
  if v_missing <> '{}' then
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
      raise exception
        'jobs with a group_key or a limit cannot be claimed under isolation level %',
        current_setting('transaction_isolation')
        using
          errcode = 'feature_not_supported',
          hint = 'Claim them in a transaction with READ COMMITTED; nothing was changed.';
    end if;
    ids := array(
      select j.id
      from {schema}.job j
      join {schema}.job_caps(p_ids) c on c.queue = j.queue and c.job_type = j.job_type
      where j.id = any (p_ids)
        and (
          j.group_key is null
          or j.in_lane
          or 'group ' || j.group_key <> all (v_missing)
        )
        and coalesce(c.type_cap <> all (v_missing), true)
        and coalesce(c.queue_cap <> all (v_missing), true)
    );
  end if;
  ids := {schema}.lanes_admit(ids);
  if p_ahead is not null and exists (
    select from {schema}.breaker b where b.state <> 'closed'
  ) then
    select b.ids, b.trials into ids, v_trials from {schema}.breakers_admit(ids) b;
  end if;
  if capped_types is not null or capped_queues is not null then
    ids := {schema}.caps_admit(ids);
  end if;
  if v_limits <> '{}' then
    select l.ids, l.starts into ids, starts
    from {schema}.limits_admit(ids, v_missing, p_ahead) l;
  end if;
  if v_trials is not null then
    -- A job that its breaker let try was refused afterwards.
    perform {schema}.trial_end(j.id, j.claims + 1, 'unknown'::text, null::text)
    from {schema}.job j
    where j.id = any (v_trials)
      and j.id <> all (ids);
    starts := coalesce(starts, '{}') || (
      select
        coalesce(
          jsonb_object_agg(t.id, coalesce(starts -> t.id::text, '[null, 0, null]') || 'true'), '{}'
        )
      from unnest(v_trials) t(id)
      where t.id = any (ids)
    );
  end if;
  return next;
end $$;
