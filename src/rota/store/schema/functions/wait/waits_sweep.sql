-- Lets jobs go on that wait for jobs which have ended. Each waits for one job by name (waits_for =
-- 'job ID'); when that job has ended, it waits for another that has not, or goes on. So the end of
-- a job costs nothing for its waiters. Reads up to p_limit names, in order, from behind p_after on.
-- Returns the last name (NULL: it came to the end), how many jobs wait there, how many go on, and
-- whether it did nothing, because another session sweeps.
-- Locks: an advisory lock, not waited for; then the waiting jobs that move, with SKIP LOCKED;
--   indexes job_waits and job_pkey. Then as jobs_release.
-- Keeps: M11, no job waits for jobs that have ended, also no job that waits again meanwhile.
create or replace function {schema}.waits_sweep(p_after text, p_limit int)
returns table (last_wait text, waits int, released int, is_busy boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_ended text[];
  v_until timestamptz := clock_timestamp() + interval '0.5 seconds';
  v_ids bigint[] := '{}';
  v_id bigint;
  v_next bigint;
  v_free bigint[] := '{}';
begin
  waits := 0;
  released := 0;
  is_busy := not pg_try_advisory_xact_lock(1919906913, hashtext('{schema}.waits'));
  if is_busy then
    return next;
    return;
  end if;
  select
    count(*),
    case when count(*) = p_limit then max(w.waits_for) end,
    coalesce(
      array_agg(distinct w.waits_for) filter (
        where not exists (
          select from {schema}.job a
          where a.id = case
              when w.waits_for ~ '^job [0-9]{1,18}$' then substr(w.waits_for, 5)::bigint
            end
            and a.status || '' <> 'dead'
        )
      ),
      '{}'
    )
  into waits, last_wait, v_ended
  from (
    select j.waits_for
    from {schema}.job j
    where j.waits_for > p_after
      and j.waits_for < 'job!'  -- the character after a blank
      and j.status || '' = 'waiting'  -- not by an index of the status
    order by j.waits_for
    limit p_limit
  ) w;
  -- Most waiters of a dead job go on waiting: they are not locked each time. A job that waited for
  -- a thousand jobs takes some 20 ms: the rest comes with the next pass.
  for v_id in
    select j.id
    from {schema}.job j
    where j.waits_for = any (v_ended)
      and j.status || '' = 'waiting'
    order by random()
    limit p_limit
  loop
    exit when clock_timestamp() > v_until;
    if (
      select 'job ' || {schema}.wait_next(j.meta) is distinct from j.waits_for
      from {schema}.job j
      where j.id = v_id
    ) then
      v_ids := v_ids || v_id;
    end if;
  end loop;
  v_ids := array(
    select j.id
    from {schema}.job j
    where j.id = any (v_ids)
      and j.status || '' = 'waiting'
      and j.waits_for = any (v_ended)
    order by j.id
    for no key update skip locked
  );
  -- A new snapshot: since the first read a job may have gone on, and wait for other jobs.
  for v_id, v_next in
    select j.id, {schema}.wait_next(j.meta)
    from {schema}.job j
    where j.id = any (v_ids)
    order by j.id
  loop
    if v_next is null then
      v_free := v_free || v_id;
    else
      begin
        update {schema}.job j
        set
          waits_for = 'job ' || v_next,
          updated_at = {schema}.clock()
        where j.id = v_id;
      exception when others or assert_failure then
        if {schema}.is_no_rows_fault(sqlstate) then
          raise;
        end if;
        -- A user's trigger refuses the row, which stays as it is.
      end;
    end if;
  end loop;
  released := {schema}.jobs_release(v_free, false, false);
  return next;
end $$;
