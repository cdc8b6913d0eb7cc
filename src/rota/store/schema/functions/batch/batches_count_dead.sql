-- Counts in their batches jobs that have died (p_sign 1), or live again as other jobs (-1).
-- Locks: none; index job_pkey.
create or replace function {schema}.batches_count_dead(p_ids bigint[], p_sign int)
returns void
language sql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  insert into {schema}.batch_delta (batch, dead)
  select j.batch, p_sign * count(*)
  from {schema}.job j
  where j.id = any (p_ids)
    and j.batch is not null
  group by j.batch
$$;
