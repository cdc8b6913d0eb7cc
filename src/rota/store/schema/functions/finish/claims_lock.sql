-- Returns the claims among these that are still held, each with whether its row is free. Free rows
-- are locked. A row that another transaction has locked is not waited for: it would hold up the
-- rest. Its claim is still held, and no other worker can take the job meanwhile.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M32, a worker that lost a job writes nothing for it.
create or replace function {schema}.claims_lock(p_ids bigint[], p_claims int[])
returns table (id bigint, is_free boolean, cancel_requested boolean, cancel_reason text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  with free as materialized (
    select j.id
    from {schema}.job j
    where j.id = any (p_ids)
      and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id
    for no key update skip locked
  )
  select
    j.id,
    j.id in (select f.id from free f),
    j.cancel_requested_at is not null,
    j.cancel_reason
  from {schema}.job j
  where j.id = any (p_ids)
    and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;
