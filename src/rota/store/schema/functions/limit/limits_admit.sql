-- Returns the jobs among these that their rate limits let start, now or within p_ahead; and their
-- starts by job, as in claimed_job (NULL: none has a limit). The rest are put off to just before
-- their estimated turns; if they are more than half, jobs behind them in their queues too. The
-- caller has locked the rows, and holds the stripes except p_missing.
--
-- Estimates go on three clocks, so that ten thousand jobs come again at the pace of the limit: for
-- urgent jobs (priority above 0), for jobs that have waited, and for new jobs. While jobs are on
-- their way, a new job gets a start only of a fast limit of which half the burst is free: nobody
-- has taken that half, because jobs on their way come before their slots.
-- Locks: further rows, with SKIP LOCKED; indexes job_ready and rate_limit_key_pkey.
-- Keeps: M62, slots in any window of `per` cost at most `starts`; M61, the urgent come first.
create or replace function {schema}.limits_admit(
  p_ids bigint[], p_missing text[], p_ahead interval
)
returns table (ids bigint[], starts jsonb)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now timestamptz := {schema}.moment();
  v_late bigint[];
  v_rooms text[];
  v_run_ats timestamptz[];
begin
  with asked as materialized (
    select
      a.*, j.queue, j.priority, j.run_at,
      case
        when j.priority > 0 then 1
        when j.waits_for ~ '^(limit|type|queue) ' then 2
        else 3
      end as rank
    from {schema}.limits_asked(p_ids) a
    join {schema}.job j on j.id = a.id
    where j.id = any (p_ids)  -- else all jobs are read
  ),
  -- In microseconds from v_now.
  room as materialized (
    select
      r.room, n.*, least(n.ahead, extract(epoch from p_ahead) * 1000000) as reach,
      {schema}.limit_ahead((n.state).urgent_to, v_now) as urgent,
      {schema}.limit_ahead((n.state).again_to, v_now) as again,
      {schema}.limit_ahead((n.state).estimated_to, v_now) as estimated
    from (select distinct a.room, a.name, a.key from asked a) r
    cross join lateral {schema}.limit_now(r.name, r.key, v_now) n
    where r.room <> all (p_missing)
  ),
  judged as materialized (
    select
      a.*, r.late,
      r.base + r.spacing * (sum(a.cost::bigint) over w - r.burst) as slot,
      case
        when a.rank = 1 or r.urgent = 0 and (a.rank = 2 or r.again = 0 and r.estimated = 0)
          or r.ahead > 0 and 2 * r.base <= r.spacing * (r.burst - 1)
          then r.reach
      end as reach
    from asked a
    left join room r on r.room = a.room
    window w as (partition by a.room order by a.rank, a.priority desc, a.run_at, a.id)
  ),
  refused as materialized (
    select j.*
    from judged j
    where j.slot <= j.reach is not true
  ),
  behind as materialized (
    select a.id, a.room, a.cost
    from (
      select array(select {schema}.ready_behind(array_agg(r.id), p_missing)) as ids
      from refused r
      having 2 * count(*) > cardinality(p_ids)
    ) ready
    cross join lateral {schema}.limits_asked(ready.ids) a
    where a.room in (select r.room from refused r)
  ),
  locked as materialized (
    select j.id, j.priority, j.run_at
    from {schema}.job j
    where j.id = any (array(select b.id from behind b))
      and j.status || '' in ('queued', 'failed')  -- not by an index of the status
    for update skip locked
  ),
  late as materialized (
    select l.*, sum(l.cost::bigint) over w as total
    from (
      select r.id, r.room, r.cost, r.rank, r.priority, r.run_at
      from refused r
      union all
      select b.id, b.room, b.cost, case when l.priority > 0 then 1 else 3 end, l.priority, l.run_at
      from behind b
      join locked l on l.id = b.id
    ) l
    window w as (partition by l.room, l.rank order by l.priority desc, l.run_at, l.id)
  ),
  planned as materialized (
    select
      r.*, given.cost as given, array[u.turn, a.turn, f.turn] as turns,
      case when c.urgent > 0 then u.turn + c.urgent * r.spacing else r.urgent end as urgent_end,
      case when c.again > 0 then a.turn + c.again * r.spacing else r.again end as again_end,
      case when c.fresh > 0 then f.turn + c.fresh * r.spacing else r.estimated end as estimated_end
    from room r
    left join (
      select j.room, sum(j.cost::bigint) as cost
      from judged j
      where j.slot <= j.reach
      group by j.room
    ) given on given.room = r.room
    left join (
      select
        l.room,
        sum(l.cost::bigint) filter (where l.rank = 1) as urgent,
        sum(l.cost::bigint) filter (where l.rank = 2) as again,
        sum(l.cost::bigint) filter (where l.rank = 3) as fresh
      from late l
      group by l.room
    ) c on c.room = r.room
    cross join lateral (
      select greatest(
        nullif(r.urgent, 0), r.base + r.spacing * (coalesce(given.cost, 0) + 1 - r.burst)
      ) as turn
    ) u
    cross join lateral (
      select greatest(u.turn + r.spacing * coalesce(c.urgent, 0), nullif(r.again, 0)) as turn
    ) a
    cross join lateral (
      select greatest(a.turn + r.spacing * coalesce(c.again, 0), nullif(r.estimated, 0)) as turn
    ) f
  ),
  inserted as (
    insert into {schema}.rate_limit_key (
      name, key, version, tat, spacing, held_to, urgent_to, again_to, estimated_to
    )
    select
      (p.state).name, (p.state).key, coalesce((p.state).version, 0) + 1,
      case
        when p.given > 0 then {schema}.limit_after(p.base + p.given * p.spacing, v_now)
        else (p.state).tat
      end,
      case when p.given > 0 then p.spacing else coalesce((p.state).spacing, p.spacing) end,
      (p.state).held_to,
      {schema}.limit_after(p.urgent_end, v_now),
      {schema}.limit_after(p.again_end, v_now),
      {schema}.limit_after(p.estimated_end, v_now)
    from planned p
  ),
  deleted as (
    delete from {schema}.rate_limit_key k
    using planned p
    where k.name = (p.state).name
      and k.key = (p.state).key
      and k.version = (p.state).version
  )
  select
    (
      select jsonb_object_agg(
        j.id, jsonb_build_array(
          j.room,
          greatest(0, j.slot) / 1e6,
          j.late / 1e6 + extract(epoch from v_now - {schema}.clock())
        )
      )
      from judged j
      where j.slot <= j.reach
    ),
    array_agg(l.id),
    array_agg(l.room),
    array_agg(
      case
        when p.room is not null
          then {schema}.limit_after(
            greatest(
              1, {schema}.limit_turn(p.turns[l.rank] + (l.total - 1) * p.spacing, p.reach, v_now)
            ),
            v_now
          )
        when l.room = any (p_missing) then v_now + interval '1 second'
        else v_now + interval '1 minute'  -- there is no such limit
      end
    )
  into starts, v_late, v_rooms, v_run_ats
  from late l
  left join planned p on p.room = l.room;
  perform {schema}.jobs_park(v_late, v_rooms, v_run_ats);
  ids := array(select unnest(p_ids) except select unnest(v_late));
  return next;
end $$;
