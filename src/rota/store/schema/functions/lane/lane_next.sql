-- Returns the first jobs of a lane that are due and may take a place, up to the free places (for
-- lane_heads). It reads priority by priority, so as to read no jobs that are not due. A job whose
-- own group_capacity allows no further place ends the list.
-- Locks: none; index job_lane.
create or replace function {schema}.lane_next(p_lane text)
returns table (id bigint, status text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_priority smallint := 32767;
  v_capacity int;
  v_held int;
begin
  v_held := (
    select count(*)
    from {schema}.job j
    where j.group_key = p_lane
      and j.in_lane
  );
  loop
    v_priority := (
      select j.priority
      from {schema}.job j
      where j.group_key = p_lane
        and j.in_lane is null
        and j.priority < v_priority
        and j.status in ('queued', 'failed', 'waiting')
      order by j.in_lane, j.priority desc
      limit 1
    );
    exit when v_priority is null;
    for id, status, v_capacity in
      select j.id, j.status, coalesce(j.group_capacity, 1)
      from {schema}.job j
      where j.group_key = p_lane
        and j.in_lane is null
        and j.priority = v_priority
        and j.run_at <= {schema}.clock()
        and j.status in ('queued', 'failed', 'waiting')
      order by j.in_lane, j.priority desc, j.run_at, j.id
      limit 1000
    loop
      if v_held >= v_capacity then
        return;
      end if;
      v_held := v_held + 1;
      return next;
    end loop;
  end loop;
end $$;
