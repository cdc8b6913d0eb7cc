-- Returns the last of the jobs that a job with this meta waits for and that have not ended; NULL:
-- all have. A dead job has ended, unless on_failure is 'wait'. Not the first: jobs mostly end in
-- their order, so the last job mostly stays the answer.
-- Locks: none; indexes as of job_end.
create or replace function {schema}.wait_next(p_meta jsonb)
returns bigint
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
  v_ids bigint[] := {schema}.wait_ids(p_meta, 'jobs'::text);
  v_holds boolean := p_meta #>> '{rota.waits,on_failure}' = 'wait';
  v_job bigint;
  v_outcome text;
begin
  for v_place in reverse cardinality(v_ids) .. 1 loop
    select e.job, e.outcome into v_job, v_outcome
    from {schema}.job_end(v_ids[v_place]) e;
    if v_outcome is null or v_outcome = 'dead' and v_holds then
      return v_job;
    end if;
  end loop;
  return null;
end $$;
