-- Frees keys of jobs that were deleted by hand: such a key has no expiry, and would be held for
-- ever. Reads up to p_limit keys of live jobs, from where the last call of any process stopped, and
-- after the last key from the first. Returns how many it freed. It frees no key with an expiry:
-- such a job has ended, and may have left no row.
-- Locks: the rows of the keys that it frees, with SKIP LOCKED; indexes idempotency_live and
--   job_pkey. If keys are left, idempotency_read.
-- Keeps: M51, a key is held while its job is live, not for ever: both are committed together.
create or replace function {schema}.keys_free(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_after bigint := coalesce((select r.job from {schema}.idempotency_read r), 0);
  v_read int;
  v_freed int;
  v_last bigint;
begin
  with ahead as materialized (
    select i.job_type, i.key, i.job
    from {schema}.idempotency i
    where i.expires_at is null
      and i.job > v_after
    order by i.job
    limit p_limit
  ),
  again as materialized (
    select i.job_type, i.key, i.job
    from {schema}.idempotency i
    where i.expires_at is null
      and i.job <= v_after
    order by i.job
    limit p_limit - (select count(*) from ahead)
  ),
  held as (
    select * from ahead
    union all
    select * from again
  ),
  orphan as materialized (
    select i.job_type, i.key
    from held h
    join {schema}.idempotency i on i.job_type = h.job_type and i.key = h.key
    where i.expires_at is null
      and not exists (select from {schema}.job j where j.id = i.job)
    for update of i skip locked
  ),
  gone as (
    delete from {schema}.idempotency i
    using orphan o
    where i.job_type = o.job_type
      and i.key = o.key
    returning i.key
  )
  select
    (select count(*) from held),
    (select count(*) from gone),
    coalesce((select max(a.job) from again a), (select max(a.job) from ahead a))
  into v_read, v_freed, v_last;
  if v_read >= p_limit then
    insert into {schema}.idempotency_read as r (job)
    values (v_last)
    on conflict (id) do update
    set job = excluded.job;
  end if;
  return v_freed;
end $$;
