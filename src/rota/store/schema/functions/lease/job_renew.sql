-- Renews the leases of jobs for the worker that still holds them. Returns the jobs that it holds,
-- which were renewed, and which have a request to cancel. p_leases runs parallel to p_types.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M32, only the worker that still holds a job extends its lease.
create or replace function {schema}.job_renew(
  p_ids bigint[],
  p_claims int[],
  p_types text[],
  p_leases interval[]
)
returns table (id bigint, renewed boolean, cancel_requested boolean, cancel_reason text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  with held as materialized (
    select * from {schema}.claims_lock(p_ids, p_claims)
  ),
  renewed as (
    update {schema}.job j
    set locked_until = {schema}.clock() + coalesce(
      p_leases[array_position(p_types, j.job_type)],
      {schema}.lease_default()
    )
    where j.id = any (array(select h.id from held h where h.is_free))
    returning j.id
  )
  select h.id, h.id in (select r.id from renewed r), h.cancel_requested, h.cancel_reason
  from held h;
end $$;
