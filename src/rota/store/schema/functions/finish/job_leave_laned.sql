-- Does job_leave for jobs that may hold a place of a lane or count in a cap, and gives what becomes
-- free to the jobs that wait for it.
-- Locks: as job_leave; then as rooms_advance.
-- Keeps: M60.
create or replace function {schema}.job_leave_laned(p_outcomes jsonb, p_release text)
returns table (id bigint, status text, run_at timestamptz, reason text)
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_rooms text[] := {schema}.rooms_of(array(
    select (i.outcome ->> 'id')::bigint
    from jsonb_array_elements(p_outcomes) i(outcome)
  ));
begin
  return query
  select l.id, l.status, l.run_at, l.reason
  from {schema}.job_leave(p_outcomes, p_release) l;
  perform {schema}.rooms_advance(v_rooms, 500);
end $$;
