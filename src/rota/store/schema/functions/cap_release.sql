-- Lets the first p_count jobs that wait for this cap compete for a slot again. Their next claim
-- decides. Returns how many.
-- Locks: the rows, with SKIP LOCKED; index job_waits.
create or replace function {schema}.cap_release(p_key text, p_count int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[] := array(
    select j.id
    from {schema}.job j
    where j.waits_for = p_key
      and j.status = 'waiting'
    order by j.priority desc, j.run_at, j.id
    limit p_count
  );
begin
  return {schema}.jobs_release(v_ids, false);
end $$;
