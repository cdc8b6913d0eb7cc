-- Returns when a job that is run again expires: after as long as the first job had, from its
-- original run_at if that is known, otherwise from its creation.
create or replace function {schema}.expires_anew(
  p_expires_at timestamptz,
  p_run_at timestamptz,
  p_created_at timestamptz,
  p_claims int
)
returns timestamptz
language sql stable
as $$
  select {schema}.clock() + (
    p_expires_at
    - case when p_claims = 0 and p_run_at < p_expires_at then p_run_at else p_created_at end
  )
$$;
