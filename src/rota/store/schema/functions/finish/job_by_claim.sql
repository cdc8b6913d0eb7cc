-- Returns the job that is held under this claim; otherwise NULL or, with p_must, an error. The
-- status is compared too: a waiting job still has the number of its last claim.
create or replace function {schema}.job_by_claim(
  p_id bigint,
  p_claims int,
  p_must boolean default true
)
returns job
language plpgsql
as $$
declare
  v_job {schema}.job;
begin
  select j.* into v_job
  from {schema}.job j
  where j.id = p_id
    and j.claims = p_claims;
  if v_job.status = 'running' then
    return v_job;
  end if;
  if p_must then
    perform {schema}.lease_lost(p_id, p_claims);
  end if;
  return null;
end $$;
