-- Returns whether a job may be joined by another job with its key. With key_scope 'pending' it must
-- still hold the key, and cannot be claimed until this transaction ends: so it will see what this
-- transaction writes. A job that other transactions have kept for ten seconds while it was due is
-- not joined any more, and gives its key up: they would keep it for ever.
-- Locks: with key_scope 'pending' the job, FOR KEY SHARE: it waits for a worker's claim.
-- Keeps: M51, with key_scope 'pending' a change that comes while the job runs makes a new job.
create or replace function {schema}.holder_keep(p_job bigint, p_job_type text, p_key text)
returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_names text[];
begin
  select array_append(t.aliases, t.name) into v_names
  from {schema}.job_type t
  where t.name = {schema}.canonical_type(p_job_type)
    and t.key_scope = 'pending';
  if v_names is null then
    return true;
  end if;
  if exists (
    select from {schema}.job j
    where j.id = p_job
      and j.status = 'queued'
      and j.run_at < {schema}.clock() - interval '10 seconds'
  )
  then
    begin
      perform from {schema}.job j where j.id = p_job for update nowait;
      raise exception 'it is free' using errcode = 'RT002';  -- and no lock stays from this look
    exception
      when sqlstate 'RT002' then
        null;
      when lock_not_available then
        delete from {schema}.idempotency i
        where i.job_type = any (v_names)
          and i.key = p_key
          and i.job = p_job;
        return false;
    end;
  end if;
  perform from {schema}.job j
  where j.id = p_job
    and j.status in ('queued', 'waiting')
  for key share;
  -- Not key_holders, which returns one job: under two names of the type two jobs may have the key.
  return exists (
    select from {schema}.idempotency i
    where i.job_type = any (v_names)
      and i.key in (p_key, {schema}.key_hash(p_key))
      and i.job = p_job
  );
end $$;
revoke execute on function {schema}.holder_keep(bigint, text, text) from public;
