-- Lets the first p_count jobs that wait for this cap compete for a slot again at their next claim.
-- Jobs that nobody would claim are not counted, because they would leave the slot unused: jobs of
-- paused queues and, if p_asks_workers, of queues or types that no live worker serves. At most a
-- thousand of them leave the line, and compete again as newcomers. Returns how many it let go.
-- Locks: the rows, with SKIP LOCKED; indexes job_waits and queue_paused.
-- Keeps: M61, a queue that is paused, or that no worker serves, holds back no other queue.
create or replace function {schema}.cap_release(p_key text, p_count int, p_asks_workers boolean)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  -- The line of a queue's own cap may wait through its pause.
  v_paused text[] := array(
    select q.name
    from {schema}.queue q
    where q.paused_at is not null
      and {schema}.is_in_force(q.paused_at, q.paused_until)
      and p_key like 'type %'
  );
  v_types text[] := case when p_key like 'type %' then {schema}.type_names(substr(p_key, 6)) end;
  -- Which jobs of the cap live workers would claim, each as its queue, a line feed and its type.
  -- NULL: no worker would claim any, so no job waits for another.
  v_served text[] := case when p_asks_workers then (
    select array_agg(distinct served.queue || e'\n' || known.job_type)
    from {schema}.worker w
    cross join lateral jsonb_object_keys(w.queues) served(queue)
    cross join lateral unnest(w.job_types) known(job_type)
    where {schema}.is_alive(w.heartbeat_at, w.stopped_at)
      and (v_types is null or known.job_type = any (v_types))
      and (v_types is not null or served.queue = substr(p_key, 7))
  ) end;
  v_ids bigint[];
  v_unclaimed bigint[];
begin
  select
    coalesce(array_agg(first.id) filter (where first.is_open), '{}'),
    coalesce(array_agg(first.id) filter (where not first.is_open), '{}')
  into v_ids, v_unclaimed
  from (
    select
      line.id,
      line.is_open,
      count(*) filter (where line.is_open) over (
        order by line.priority desc, line.run_at, line.id
        rows between unbounded preceding and 1 preceding
      ) as ahead
    from (
      select
        j.id, j.priority, j.run_at,
        j.queue <> all (v_paused)
        and coalesce(j.queue || e'\n' || j.job_type = any (v_served), true) as is_open
      from {schema}.job j
      where j.waits_for = p_key
        and j.status = 'waiting'
      order by j.priority desc, j.run_at, j.id
      limit p_count + case when v_paused <> '{}' or v_served is not null then 1000 else 0 end
    ) line
  ) first
  where first.ahead < p_count;
  return {schema}.jobs_release(v_ids, false, true)
    + {schema}.jobs_release(v_unclaimed, false, false);
end $$;
