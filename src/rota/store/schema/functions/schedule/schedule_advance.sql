-- Enqueues ticks of a schedule and moves its next_run_at to p_then, in one step, if the schedule is
-- unchanged since it was read. Returns one row without a tick, and one row for each tick with its
-- job; of a skipped tick also the earlier run that is not over. No row: another worker did it.
-- Locks: the row of the schedule, with SKIP LOCKED; index job_schedule.
-- Keeps: M82, one job per tick over all workers; a tick that is not enqueued leaves a row.
create or replace function {schema}.schedule_advance(
  p_name text,
  p_next_run_at timestamptz,
  p_since timestamptz,
  p_then timestamptz,
  p_ticks timestamptz[],
  p_run_ats timestamptz[]
)
returns table (scheduled_for timestamptz, job bigint, live bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_schedule {schema}.schedule;
  v_last bigint;
  v_status text;
begin
  if cardinality(p_ticks) = 0 and not has_table_privilege('{schema}.schedule', 'update') then
    return;  -- this role may only resume and put schedules: the next pass announces the tick
  end if;
  select * into v_schedule
  from {schema}.schedule s
  where s.name = p_name
    and s.next_run_at is not distinct from p_next_run_at
    and s.since = p_since
    and s.cron is not null
    and s.paused_at is null
    and s.disabled_at is null
  for no key update skip locked;
  if not found or {schema}.is_paused() then
    return;
  end if;
  return next;
  for i in 1 .. cardinality(p_ticks) loop
    scheduled_for := p_ticks[i];
    live := null;
    if v_schedule.overlap = 'skip' then
      select j.id, j.status into live, v_status
      from {schema}.job j
      where j.schedule = p_name
        and j.status <> 'dead'
        and j.schedule is not null
      order by j.schedule, j.id
      limit 1;
    end if;
    if live is null then
      job := {schema}.schedule_enqueue(v_schedule, p_ticks[i], p_run_ats[i]);
      v_last := job;
    else
      job := {schema}.schedule_skip(
        v_schedule,
        p_ticks[i],
        format('job %s of this schedule was still %s', live, v_status)
      );
    end if;
    return next;
  end loop;
  update {schema}.schedule s
  set
    next_run_at = p_then,
    last_error = null,
    last_job = coalesce(v_last, s.last_job),
    last_run_at = case when v_last is null then s.last_run_at else {schema}.clock() end
  where s.name = p_name;
end $$;
