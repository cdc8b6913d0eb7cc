-- Lets a waiting job wait for another one. The caller has locked its row. A row that a trigger of
-- the user's refuses stays as it is.
-- Locks: none but the caller's; index job_pkey.
create or replace function {schema}.wait_move(p_id bigint, p_next bigint)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
begin
  update {schema}.job j
  set
    waits_for = 'job ' || p_next,
    updated_at = {schema}.clock()
  where j.id = p_id;
exception when others or assert_failure then
  if sqlstate ~ '^(08|57|25006|53|58|28|3D|40)' then
    raise;
  end if;
end $$;
