-- Returns when a job that is run once more expires: after as much time from now as the first one
-- had. That time counts from its first run_at where it is still known, else from its creation.
create or replace function expires_anew(
  p_expires_at timestamptz,
  p_run_at timestamptz,
  p_created_at timestamptz,
  p_claims int
)
returns timestamptz
language sql stable
set search_path from current
as $$
  select clock() + (
    p_expires_at
    - case when p_claims = 0 and p_run_at < p_expires_at then p_run_at else p_created_at end
  )
$$;
