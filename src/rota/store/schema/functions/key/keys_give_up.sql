-- Frees the keys of these jobs if their types have key_scope 'pending', which holds a key only
-- until the first start; with 'live' the keys of dead jobs. The text of the key stays on the job as
-- a record. A job that is still queued keeps its key: a user's trigger kept it from being claimed.
-- Locks: the rows of the keys; indexes job_pkey and idempotency_pkey.
-- Keeps: M51, a job that gave its key up never frees that of another job.
create or replace function {schema}.keys_give_up(p_ids bigint[])
returns void
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
  delete from {schema}.idempotency i
  using (
    select
      j.id, j.job_type, j.idempotency_key, j.status, {schema}.canonical_type(j.job_type) as name
    from {schema}.job j
    where j.id = any (p_ids)
      and j.idempotency_key is not null
      and j.status <> 'queued'
  ) k
  where exists (
      select from {schema}.job_type t
      where t.name = k.name
        and (t.key_scope = 'pending' or t.key_scope = 'live' and k.status = 'dead')
    )
    and i.job_type in (k.job_type, k.name)
    and i.key = k.idempotency_key
    and i.job = k.id
$$;
