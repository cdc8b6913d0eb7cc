-- Lets the first p_count jobs that wait for this cap compete for a slot again. Their next claim
-- decides. Jobs of paused queues among them are not counted, because they would leave the slot
-- unused and the others in the line: at most a thousand of them go along. Returns how many.
-- Locks: the rows, with SKIP LOCKED; indexes job_waits and queue_paused.
-- Keeps: M61, a paused queue holds back no other queue whose jobs have the same type.
create or replace function {schema}.cap_release(p_key text, p_count int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
declare
  -- A queue's own line may wait with it.
  v_paused text[] := array(
    select q.name
    from {schema}.queue q
    where q.paused_at is not null
      and {schema}.is_in_force(q.paused_at, q.paused_until)
      and p_key like 'type %'
  );
  v_ids bigint[] := array(
    select first.id
    from (
      select
        line.id,
        count(*) filter (where line.is_open) over (
          order by line.priority desc, line.run_at, line.id
          rows between unbounded preceding and 1 preceding
        ) as ahead
      from (
        select j.id, j.priority, j.run_at, j.queue <> all (v_paused) as is_open
        from {schema}.job j
        where j.waits_for = p_key
          and j.status = 'waiting'
        order by j.priority desc, j.run_at, j.id
        limit p_count + case when v_paused <> '{}' then 1000 else 0 end
      ) line
    ) first
    where first.ahead < p_count
  );
begin
  return {schema}.jobs_release(v_ids, false);
end $$;
