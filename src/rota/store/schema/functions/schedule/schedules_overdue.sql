-- Returns the schedules that do not fire, the latest first: late or unplanned by more than p_late,
-- or paused by Rota, with the reason. since: when they were due, or paused; last_error: why the
-- database refused the job of a tick. Not late: a schedule that is paused by a person or disabled;
-- that a just started worker is about to fire, after a time without workers; that has been waiting
-- since a pause of everything ended. It returns none while everything is paused.
create or replace function {schema}.schedules_overdue(p_late interval, p_limit int)
returns table (name text, since timestamptz, stopped_why text, last_error text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with resumed as materialized (
    select max(a.at) as at
    from {schema}.alert_resumed(p_late) a
    where a.queue is null
  ),
  worked as materialized (
    select case
      when bool_or({schema}.is_alive(w.heartbeat_at, w.stopped_at)) then min(w.started_at)
      else '-infinity'
    end as since
    -- Longer than drains are apart: each drain has just started.
    from {schema}.workers_seen(greatest(p_late, interval '5 minutes')) w
  )
  select
    s.name,
    coalesce(s.paused_at, s.next_run_at, s.since),
    case when s.paused_at is not null then coalesce(s.paused_why, '') end,
    s.last_error
  from {schema}.schedule s
  cross join resumed r
  cross join worked w
  where s.cron is not null
    and s.disabled_at is null
    and not {schema}.is_paused()
    and case
      when s.paused_at is not null then s.refused
      else greatest(coalesce(s.next_run_at, s.since), r.at) < {schema}.clock() - p_late
        and (
          s.last_error is not null
          or w.since < {schema}.clock() - least(p_late, interval '1 minute')
        )
    end
  order by 2, 1
  limit p_limit
$$;
