-- Takes due jobs out of the ready ones until something lets them run: this cap, or the lane of each
-- (NULL). A job that waits for a cap has won its lane before, and holds a place there from now on.
-- One that comes back to the line for the same cap has its old place in it. The caller has locked
-- the rows. A row that a trigger of the user's refuses stays as it is.
-- Locks: the rows; index job_pkey.
create or replace function {schema}.jobs_park(p_ids bigint[], p_cap text)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
declare
  v_one bigint;
begin
  update {schema}.job j
  set
    status = 'waiting',
    run_at = case
      when p_cap is null then j.run_at
      when j.waits_for = p_cap then j.waits_since
      else {schema}.clock()
    end,
    in_lane = case when p_cap is not null and j.group_key is not null then true end,
    waits_for = p_cap,
    waits_since = case
      when j.waits_for = p_cap then j.waits_since
      when p_cap is not null then {schema}.clock()
    end,
    updated_at = {schema}.clock()
  where j.id = any (p_ids);
exception when others or assert_failure then
  if sqlstate ~ '^(08|57|25006|53|58|28|3D|40)' then
    raise;
  end if;
  if cardinality(p_ids) > 1 then
    foreach v_one in array p_ids loop
      perform {schema}.jobs_park(array[v_one], p_cap);
    end loop;
  end if;
end $$;
