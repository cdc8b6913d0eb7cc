-- Says what follows a batch that was opened in this transaction, where that names its members: jobs
-- that take their results (see batch_payload). Call it before batch_add. SECURITY DEFINER: a
-- producer needs no right on a table but INSERT on job.
-- Locks: none, because nobody else sees the batch yet; index batch_pkey.
create or replace function {schema}.batch_then(p_batch bigint, p_then jsonb)
returns void
language sql security definer
as $$
  update {schema}.batch b
  set then_jobs = p_then
  where b.id = p_batch
    and b.total = 0
    and b.then_jobs is null
    and b.ended_at is null
$$;
revoke execute on function {schema}.batch_then(bigint, jsonb) from public;
