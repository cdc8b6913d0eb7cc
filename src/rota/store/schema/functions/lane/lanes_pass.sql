-- Gives the free places of these lanes to their first jobs, as rooms_advance does, except jobs
-- whose turn it is with a worker that has just ended jobs of the lanes: it locks and returns these
-- (for job_finish_passing). It is a job's turn if the worker may claim it, no cap, limit or breaker
-- holds it up, and the worker would claim no other ready job first. A job that did not fit this
-- release once is left to job_claim, which tries it again in an hour.
--
-- p_lo … p_after_id: as in job_claim, where a ready job would be found; a branch is a queue and a
-- priority, and the branches of a group share slots. p_room: how many jobs each group has room for.
-- Locks: the stripes of the lanes; then the rows, with SKIP LOCKED; indexes job_lane and job_ready.
-- Keeps: M30, M60; a lane takes no turn of another.
create or replace function {schema}.lanes_pass(
  p_rooms text[],
  p_release text,
  p_types text[],
  p_room int[],
  p_lo int[],
  p_hi int[],
  p_queues text[],
  p_priorities smallint[],
  p_after_run_at timestamptz[],
  p_after_id bigint[]
)
returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_mergejoin = off set enable_hashjoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_has_caps boolean :=
    exists (select from {schema}.queue q where q.max_running is not null)
    or exists (select from {schema}.job_type t where t.max_running is not null);
  v_asking text[] := array(select t.name from {schema}.types_asking() t(name));
  v_missing text[] := {schema}.stripes_lock(array(select distinct unnest(p_rooms)), 500);
  v_ids bigint[];
  v_left bigint[];
begin
  with branch as materialized (
    select g.number, b.queue, b.priority, b.is_busy
    from unnest(p_lo, p_hi) with ordinality g(lo, hi, number)
    cross join lateral (
      select
        p_queues[k] as queue,
        p_priorities[k] as priority,
        exists (
          select from {schema}.job r
          where r.queue = p_queues[k]
            and r.priority = p_priorities[k]
            and r.status in ('queued', 'failed')
            and (r.run_at, r.id) > (p_after_run_at[k], p_after_id[k])
            and r.run_at <= {schema}.clock()
            and r.job_type = any (p_types)
        ) as is_busy
      from generate_series(g.lo, g.hi) k
    ) b
  ),
  open as materialized (
    select b.queue, b.priority, b.number
    from branch b
    where b.queue <> all ({schema}.paused_queues(p_queues))
      and not exists (
        select from branch o
        where o.is_busy
          and o.number = b.number
          and (o.queue <> b.queue or o.priority >= b.priority)
      )
  ),
  head as materialized (
    select
      h.id,
      p_room[f.number] as room,
      row_number() over (partition by f.number) as place
    from {schema}.lane_heads(array(
      select distinct substr(r.room, 7)
      from unnest(p_rooms) r(room)
      where r.room <> all (v_missing)
    )) h
    left join lateral (
      select o.number
      from {schema}.job j
      join open o on o.queue = j.queue and o.priority = j.priority
      where j.id = h.id
        and j.job_type = any (p_types)
        and (j.mismatched_releases is null or not p_release = any (j.mismatched_releases))
        and (j.job_type <> all (v_asking) or not exists (
          select from {schema}.limits_asked(array[j.id])
          union all
          select from {schema}.breakers_blocking(array[j.id])
        ))
        and not (v_has_caps and exists (
          select from {schema}.job_caps(array[j.id]) c
          where coalesce(c.type_cap, c.queue_cap) is not null
        ))
    ) f on true
    where h.status = 'waiting'
  )
  select
    array_agg(h.id) filter (where h.place <= h.room),
    array_agg(h.id) filter (where (h.place <= h.room) is not true)
  into v_ids, v_left
  from head h;
  perform {schema}.jobs_release(coalesce(v_left, '{}'), true, false);
  return array(
    select j.id
    from {schema}.job j
    where j.id = any (v_ids)
      and j.status || '' = 'waiting'  -- not by an index of the status
    for no key update skip locked
  );
end $$;
