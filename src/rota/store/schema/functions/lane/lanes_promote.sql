-- Gives the free places of these lanes to their first jobs, if parked; a first job that is ready
-- takes its place at its claim. The caller holds the lanes' stripes. Returns how many it placed.
-- Locks: the rows, with SKIP LOCKED; index job_lane.
-- Keeps: M60; if the first job of a lane is locked by another transaction, no later one passes it.
create or replace function {schema}.lanes_promote(p_lanes text[])
returns int
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_ids bigint[] := array(
    select h.id
    from {schema}.lane_heads(p_lanes) h
    where h.status = 'waiting'
  );
begin
  return {schema}.jobs_release(v_ids, true, false);
end $$;
