-- Hands a running job back, so that another worker can claim it at once, uncharged.
create or replace function {schema}.worker_hand_back(id bigint, claims int)
returns table (status text, run_at timestamptz)
language sql security definer
as $$
  select b.status, b.run_at
  from {schema}.job_hand_back(id, claims, null::float8) b
$$;
revoke execute on function {schema}.worker_hand_back(bigint, int) from public;
