-- Does job_finish for jobs that may hold a place of a lane or count in a cap, and gives what
-- becomes free to the jobs that wait for it.
-- Locks: as job_finish; then as rooms_advance.
-- Keeps: M60, the next job of a lane is due with the commit that ends the job before it.
create or replace function {schema}.job_finish_laned(
  p_ids bigint[],
  p_claims int[],
  p_statuses text[],
  p_ran_us bigint[],
  p_results text[],
  p_reasons text[],
  p_resolutions jsonb[],
  p_release text
)
returns setof bigint
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_rooms text[] := {schema}.rooms_of(p_ids);
begin
  return query
  select f.id
  from {schema}.job_finish(
    p_ids, p_claims, p_statuses, p_ran_us, p_results, p_reasons, p_resolutions, p_release
  ) f(id);
  perform {schema}.rooms_advance(v_rooms, 500);
end $$;
