-- Returns the schedules that do not fire, the latest first: those whose tick was due more than
-- p_late ago, those that have been unplanned for as long, and those that Rota paused because they
-- cannot run as they are, with the reason; last_error is why the database did not take the job of
-- a tick. It leaves out schedules that a person paused or that are
-- disabled, and returns none while everything is paused.
create or replace function {schema}.schedules_overdue(p_late interval, p_limit int)
returns table (name text, due_at timestamptz, stopped_why text, last_error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select
    s.name,
    coalesce(s.next_run_at, s.since),
    case when s.paused_at is not null then coalesce(s.paused_why, '') end,
    s.last_error
  from {schema}.schedule s
  where s.cron is not null
    and s.disabled_at is null
    and not {schema}.is_paused()
    and case
      when s.paused_at is null then coalesce(s.next_run_at, s.since) < {schema}.clock() - p_late
      else s.refused
    end
  order by 2, 1
  limit p_limit
$$;
