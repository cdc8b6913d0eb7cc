-- Parks these jobs in the line of a cap. p_more: and also those among the next thousand ready jobs
-- behind each of their priorities that this cap counts and that have no lane to ask. So a type with
-- many jobs is soon out of the way of the others in its queue.
-- Locks: further rows, with SKIP LOCKED; index job_ready.
create or replace function {schema}.cap_park(p_cap text, p_ids bigint[], p_more boolean)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
declare
  -- Of a type's cap; that of a queue counts all types.
  v_types text[] := case
    when p_cap like 'type %' then {schema}.type_names(substr(p_cap, 6))
  end;
  v_more bigint[] := '{}';
begin
  if p_more then
    v_more := array(
      with last as materialized (
        select distinct on (j.queue, j.priority) j.queue, j.priority, j.run_at, j.id
        from {schema}.job j
        where j.id = any (p_ids)
        order by j.queue, j.priority, j.run_at desc, j.id desc
      ),
      behind as materialized (
        select b.id
        from last l
        cross join lateral (
          select j.id, j.job_type, j.group_key, j.in_lane
          from {schema}.job j
          where j.queue = l.queue
            and j.priority = l.priority
            and j.status in ('queued', 'failed')
            and (j.run_at, j.id) > (l.run_at, l.id)
            and j.run_at <= {schema}.clock()
          order by j.run_at, j.id
          limit 1000
        ) b
        where (v_types is null or b.job_type = any (v_types))
          and (b.group_key is null or b.in_lane)
      )
      select j.id
      from {schema}.job j
      where j.id = any (array(select b.id from behind b))
        and j.status || '' in ('queued', 'failed')  -- not by an index of the status
      for update skip locked
    );
  end if;
  perform {schema}.jobs_park(p_ids || v_more, p_cap);
end $$;
