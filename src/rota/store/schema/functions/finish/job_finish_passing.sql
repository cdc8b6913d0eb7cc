-- Does job_finish_laned for jobs that have succeeded without a result, and gives the next jobs of
-- their lanes to the same worker where it is their turn (see lanes_pass). Returns the jobs that it
-- gives, which jobs it finished, and when.
-- Rows: {claimed}.
-- Locks: as job_finish; then as lanes_pass and rooms_advance.
-- Keeps: M31, a claim is a lease; M60, as job_finish_laned.
create or replace function {schema}.job_finish_passing(
  p_ids bigint[],
  p_claims int[],
  p_ran_us bigint[],
  p_release text,
  p_worker text,
  p_types text[],
  p_leases interval[],
  p_records boolean[],
  p_room int[],
  p_lo int[],
  p_hi int[],
  p_queues text[],
  p_priorities smallint[],
  p_after_run_at timestamptz[],
  p_after_id bigint[]
)
returns table (taken {schema}.claimed_job[], started timestamptz, finished bigint[])
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_rooms text[] := {schema}.rooms_of(p_ids);
  v_next bigint[];
begin
  finished := array(
    select f.id
    from {schema}.job_finish(
      p_ids, p_claims, null::text[], p_ran_us, null::text[], null::text[], null::jsonb[], p_release
    ) f(id)
  );
  if exists (select from unnest(v_rooms) r(room) where r.room not like 'group %') then
    perform {schema}.rooms_advance(v_rooms, 500);
  elsif v_rooms <> '{}' then
    v_next := {schema}.lanes_pass(
      v_rooms, p_release, p_types,
      p_room, p_lo, p_hi, p_queues, p_priorities, p_after_run_at, p_after_id
    );
    begin
      select array_agg(t) into taken
      from {schema}.job_take(
        v_next, p_worker, p_types, p_leases, p_records, null::text[], null::text[], null::jsonb
      ) t;
    exception when others or assert_failure then
      if {schema}.is_no_rows_fault(sqlstate) then
        raise;
      end if;
      -- job_claim finds out which row the database refuses, and reports it.
      perform {schema}.jobs_release(v_next, true, false);
    end;
  end if;
  started := {schema}.clock();
  return next;
end $$;
