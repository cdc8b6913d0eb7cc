-- Renews the leases of jobs by the worker that still holds them; returns those it held, which were renewed, and which somebody wants stopped. A row that another
-- transaction has locked is not waited for, or one job would cost all others their leases: it is still held, and cannot be reaped meanwhile either.
-- p_leases goes with p_types.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M32, only the worker that still holds a job extends its lease.
create or replace function job_renew(p_ids bigint[], p_claims int[], p_types text[], p_leases interval[])
returns table (id bigint, renewed boolean, cancel_requested boolean, cancel_reason text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
set search_path from current as $$
#variable_conflict use_column
begin
  return query
  with free as materialized (
    select j.id from job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id for no key update skip locked),
  renewed as (
    update job j set locked_until = clock() + coalesce(p_leases[array_position(p_types, j.job_type)], interval '2 minutes')
    where j.id = any (array(select f.id from free f)))
  select j.id, j.id in (select f.id from free f), j.cancel_requested_at is not null, j.cancel_reason from job j
  where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;
