-- Parks due jobs: until their caps (p_rooms) or, where NULL, their lanes let them run; of a limit
-- or a breaker until p_run_ats. The arrays run parallel. A job that waits for a cap or limit has
-- won its lane before, and holds a place there. A job that comes back for the same cap has its old
-- place in the line. A row that a user's trigger refuses stays. The caller has locked the rows.
-- Locks: the rows; index job_pkey.
create or replace function {schema}.jobs_park(
  p_ids bigint[], p_rooms text[], p_run_ats timestamptz[]
)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  update {schema}.job j
  set
    status = case when p.run_at is null then 'waiting' else 'queued' end,
    run_at = case
      when p.run_at is not null then p.run_at
      when p.room is null then j.run_at
      when j.waits_for = p.room then j.waits_since
      else {schema}.clock()
    end,
    in_lane = case when p.room is not null and j.group_key is not null then true end,
    waits_for = p.room,
    waits_since = case
      when j.waits_for = p.room then j.waits_since
      when p.room is not null then {schema}.clock()
    end,
    updated_at = {schema}.clock()
  from unnest(p_ids, p_rooms, p_run_ats) p(id, room, run_at)
  where j.id = p.id;
exception when others or assert_failure then
  if {schema}.is_no_rows_fault(sqlstate) then
    raise;
  end if;
  if cardinality(p_ids) > 1 then
    for n in 1 .. cardinality(p_ids) loop
      perform {schema}.jobs_park(p_ids[n : n], p_rooms[n : n], p_run_ats[n : n]);
    end loop;
  end if;
end $$;
