-- Returns the schedules that are not planned yet, or whose next_run_at has come. It reads from
-- p_after on, because the index keeps entries of past ticks. While everything is paused it returns
-- none: their ticks are handled afterwards, as after an outage. Each row has the clock, and the
-- seconds until the next tick of all other schedules.
-- Locks: none; indexes schedule_next and schedule_unplanned.
-- Keeps: M22, the database's clock decides; idle workers read next to nothing.
create or replace function {schema}.schedules_due(p_after timestamptz, p_limit int)
returns table (
  now timestamptz,
  paused boolean,
  next_in_s float8,
  name text,
  cron text,
  timezone text,
  catch_up text,
  jitter_s float8,
  next_run_at timestamptz,
  since timestamptz,
  unfit text
)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
declare
  v_paused boolean := {schema}.is_paused();
  v_limit int := case when v_paused then 0 else p_limit end;
begin
  return query
  select
    {schema}.clock(),
    v_paused,
    (
      select extract(epoch from x.next_run_at - {schema}.clock())::float8
      from {schema}.schedule x
      where x.next_run_at > {schema}.clock()
        and x.cron is not null
        and x.paused_at is null
        and x.disabled_at is null
      order by x.next_run_at
      limit 1
    ),
    due.name, due.cron, due.timezone, due.catch_up,
    extract(epoch from due.jitter)::float8,
    due.next_run_at, due.since,
    {schema}.job_refusal(jsonb_populate_record(null::{schema}.job, to_jsonb(due)))
  from (select) always
  left join lateral (
    (
      select s.*
      from {schema}.schedule s
      where s.next_run_at > p_after
        and s.next_run_at <= {schema}.clock()
        and s.cron is not null
        and s.paused_at is null
        and s.disabled_at is null
      order by s.next_run_at
      limit v_limit
    )
    union all
    (
      select s.*
      from {schema}.schedule s
      where s.next_run_at is null
        and s.cron is not null
        and s.paused_at is null
        and s.disabled_at is null
      order by s.since
      limit v_limit
    )
  ) due on true;
end $$;
