-- The job that is held under this claim. Without the status, the number of a job that waits would pass for a claim. p_must: one that is not held is an
-- error; else NULL.
create or replace function job_held(p_id bigint, p_claims int, p_must boolean default true) returns job
language plpgsql set search_path from current as $$
declare v_job job; begin
  select j.* into v_job from job j where j.id = p_id and j.claims = p_claims;
  if v_job.status = 'running' then
    return v_job;
  end if;
  if p_must then
    perform lease_lost(p_id, p_claims);
  end if;
  return null;
end $$;
