-- Adds to the figures what ended in the closed minutes, up to an hour of it. Returns whether there
-- is more. A minute is closed when it is two minutes old: Rota's own statements end within 30 s.
-- One worker at a time rolls up. It writes how far it got in the same transaction, so each row is
-- counted once, whatever is killed.
-- During an hour, it reads only the end of the day's rows. When the hour is over, it counts that
-- hour again from the whole day (at most two gigabytes of it), because a row may also have been
-- written into free space of an older block. No index is needed, so no finish pays for one. Rows
-- that history no longer holds are not counted again.
-- A clock that was ahead and was set right has closed minutes that are still to come: they are
-- counted again from the current hour on.
-- Locks: the row of stat_rollup, with SKIP LOCKED; no index: the tail of one day's history, or once
--   an hour all of that day.
-- Keeps: M85, each row counted once, and no finish pays for it.
create or replace function {schema}.stats_roll_up()
returns boolean
language plpgsql
set jit = off set max_parallel_workers_per_gather = 0
as $$
declare
  v_closed timestamptz := date_trunc('minute', {schema}.clock() - interval '2 minutes', 'UTC');
  v_from timestamptz;
  v_hour timestamptz;
  v_to timestamptz;
  v_day timestamptz;
  v_blocks bigint;
  v_first bigint;
begin
  select f.complete_to into v_from
  from {schema}.stat_rollup f
  where f.complete_to < v_closed
    or f.complete_to > {schema}.clock()
  for update skip locked;
  if not found then
    return false;
  end if;
  if v_from > {schema}.clock() then
    v_from := date_trunc('hour', v_closed, 'UTC');
    delete from {schema}.stat_hour s where s.hour >= v_from;
    update {schema}.stat_rollup set complete_to = v_from;
  end if;
  v_hour := date_trunc('hour', v_from, 'UTC');
  v_to := least(v_closed, v_hour + interval '1 hour');
  v_day := date_trunc('day', v_hour, 'UTC');
  v_blocks := {schema}.history_blocks(v_day);
  v_first := {schema}.history_block(v_day, v_from - interval '1 minute', v_blocks);
  if v_blocks is not null
    or not exists (select from {schema}.stat_hour s where s.hour = v_hour)
  then
    if v_to = v_hour + interval '1 hour' then
      v_from := v_hour;
      v_first := least(
        {schema}.history_block(v_day, v_from - interval '1 minute', v_blocks),
        greatest(0, v_blocks - 262144)
      );
    end if;
    if v_from = v_hour then
      delete from {schema}.stat_hour s where s.hour = v_hour;
    end if;
    if v_blocks > 0 then
      insert into {schema}.stat_hour as s (
        hour, job_type, queue, succeeded, succeeded_late, cancelled, waited, ran
      )
      select
        e.hour, e.job_type, e.queue,
        e.succeeded, e.succeeded_late, e.cancelled, e.waited, e.ran
      from {schema}.figures_ended(v_from, v_to, v_first) e
      on conflict (hour, job_type, queue) do update
      set
        succeeded = s.succeeded + excluded.succeeded,
        succeeded_late = s.succeeded_late + excluded.succeeded_late,
        cancelled = s.cancelled + excluded.cancelled,
        waited = {schema}.buckets_sum(s.waited, excluded.waited),
        ran = {schema}.buckets_sum(s.ran, excluded.ran);
    end if;
    insert into {schema}.stat_hour as s (hour, job_type, queue, retried, dead, failed_by_release)
    select f.hour, f.job_type, f.queue, f.retried, f.dead, f.failed_by_release
    from {schema}.figures_failed(v_from, v_to) f
    on conflict (hour, job_type, queue) do update
    set
      retried = s.retried + excluded.retried,
      dead = s.dead + excluded.dead,
      failed_by_release = {schema}.releases_sum(s.failed_by_release, excluded.failed_by_release);
  end if;
  update {schema}.stat_rollup set complete_to = v_to;
  return v_to < v_closed;
end $$;
