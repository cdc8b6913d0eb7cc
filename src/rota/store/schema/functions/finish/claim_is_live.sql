-- Returns whether a claim still holds its job. Its lease may be over: the worker may still run it.
create or replace function {schema}.claim_is_live(p_job bigint, p_claims int)
returns boolean
language sql stable
as $$
  select exists (
    select
    from {schema}.job j
    where j.id = p_job
      and j.claims = p_claims
      and j.status = 'running'
  )
$$;
