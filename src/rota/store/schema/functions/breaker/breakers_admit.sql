-- Returns the jobs among these that their breakers let start, and which are trials: one job of all
-- workers may try a breaker after its open time, until its claim is over. The rest are put off
-- until the breaker may be tried, spread over a quarter of that time; during a trial for a minute:
-- its success releases them, its failure calls the next. If they are more than half, jobs of open
-- breakers among the next thousand in their queues are put off too. The caller has locked the rows.
-- Locks: due breakers and further jobs, SKIP LOCKED; indexes breaker_active and job_ready.
-- Keeps: M63, exactly one trial: decided in a statement that begins after the row is locked.
create or replace function {schema}.breakers_admit(p_ids bigint[])
returns table (ids bigint[], trials bigint[])
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now timestamptz := {schema}.clock();
  v_blocked bigint[];
  v_names text[];                                -- names of due breakers, parallel to v_keys
  v_keys text[];
  v_mine text[];                                 -- rooms of due breakers whose rows are locked here
  v_claims int[];
  v_behind bigint[] := '{}';
  v_late bigint[];
  v_rooms text[];
  v_run_ats timestamptz[];
begin
  select
    array_agg(s.id),
    array_agg(s.name) filter (where s.state = 'due'),
    array_agg(s.key) filter (where s.state = 'due')
  into v_blocked, v_names, v_keys
  from {schema}.breakers_blocking(p_ids) s;
  if v_blocked is null then
    ids := p_ids;
    return next;
    return;
  end if;
  v_mine := array(
    select {schema}.room_name('breaker'::text, b.name, b.key)
    from (select distinct name, key from unnest(v_names, v_keys) d(name, key)) d
    cross join lateral (
      select b.name, b.key
      from {schema}.breaker b
      where b.name = d.name
        and b.key = d.key
      for no key update skip locked
    ) b
  );
  if 2 * cardinality(v_blocked) > cardinality(p_ids) then
    v_behind := array(
      select j.id
      from {schema}.job j
      where j.id = any (array(
          select s.id
          from {schema}.breakers_blocking(array(
            select {schema}.ready_behind(v_blocked, null::text[])
          )) s
          where s.state <> 'due' or s.room = any (v_mine)
        ))
        and j.status || '' in ('queued', 'failed')  -- not by an index of the status
      for update skip locked
    );
  end if;
  with blocked as materialized (
    select
      s.id, s.name, s.key, s.room, s.state, s.wait_s, j.claims,
      row_number() over w - 1.0 as ahead,
      count(*) over (partition by s.room) as jobs,
      s.state = 'due' and s.room = any (v_mine)
        and row_number() over w = 1 and j.id = any (p_ids) as tries
    from {schema}.breakers_blocking(p_ids || v_behind) s
    join {schema}.job j on j.id = s.id
    where j.id = any (p_ids || v_behind)
    window w as (
      partition by s.room order by j.id = any (p_ids) desc, j.priority desc, j.run_at, j.id
    )
  )
  select
    array_agg(b.id) filter (where not b.tries),
    array_agg(b.room) filter (where not b.tries),
    array_agg(
      v_now + interval '1 second' * case
        when b.state = 'due' and b.room <> all (v_mine) then 1 + b.ahead / 1000
        when b.state <> 'open' then 60 + 15 * b.ahead / b.jobs
        when b.wait_s is null then 3600  -- a reset releases it before
        else b.wait_s + least(greatest(1, b.wait_s / 4), 60) * b.ahead / b.jobs
      end
    ) filter (where not b.tries),
    array_agg(b.id) filter (where b.tries),
    array_agg(b.room) filter (where b.tries),
    array_agg(b.name) filter (where b.tries),
    array_agg(b.key) filter (where b.tries),
    array_agg(b.claims + 1) filter (where b.tries)
  into v_late, v_rooms, v_run_ats, trials, v_mine, v_names, v_keys, v_claims
  from blocked b;
  begin
    update {schema}.breaker b
    set
      state = 'trial',
      trial_job = t.job,
      trial_claim = t.claim,
      changed_at = v_now,
      changed_by = null
    from unnest(v_names, v_keys, trials, v_claims) t(name, key, job, claim)
    where b.name = t.name
      and b.key = t.key;
  exception when others or assert_failure then
    if {schema}.is_no_rows_fault(sqlstate) then
      raise;
    end if;
    -- A user's trigger refuses it: nobody tries now.
    v_late := v_late || trials;
    v_rooms := v_rooms || v_mine;
    v_run_ats := v_run_ats || array_fill(v_now + interval '1 minute', array[cardinality(trials)]);
    trials := null;
  end;
  perform {schema}.jobs_park(v_late, v_rooms, v_run_ats);
  ids := array(select unnest(p_ids) except select unnest(v_late));
  return next;
end $$;
