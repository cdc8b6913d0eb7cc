-- Makes the idempotency keys of ended jobs hashes. From then on every look-up of a key or of an
-- effect also tries its hash. The keys of waiting and dead jobs, which are about to be ended and
-- erased, are held as after a success, if their scope is ttl. The caller has locked the jobs' rows.
-- Locks: the rows of the keys, and the first time the row of `installation`; indexes job_pkey,
--   job_history_id, idempotency_live and idempotency_pkey. Without a job's row it reads all keys.
-- Keeps: M51, a key stays taken as long as it was, or as after a success.
create or replace function {schema}.keys_erase(p_ids bigint[])
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
begin
  if p_ids = '{}' then
    return;
  end if;
  perform {schema}.installation_record(false);
  update {schema}.installation
  set keys_erased = true
  where not keys_erased;
  -- The hash of an earlier job's key, which has expired.
  delete from {schema}.idempotency i
  using {schema}.job_history h
  where h.id = any (p_ids)
    and i.job_type in (h.job_type, {schema}.canonical_type(h.job_type))
    and i.key = {schema}.key_hash(h.idempotency_key)
    and i.job <> h.id
    and i.expires_at <= {schema}.clock();
  update {schema}.idempotency i
  set key = {schema}.key_hash(i.key)
  from {schema}.job_history h
  where h.id = any (p_ids)
    and i.job_type in (h.job_type, {schema}.canonical_type(h.job_type))
    and i.key = h.idempotency_key
    and i.job = h.id;
  delete from {schema}.idempotency e
  using {schema}.idempotency i
  where i.job = any (p_ids)
    and i.expires_at is null
    and e.job_type = i.job_type
    and e.key = {schema}.key_hash(i.key)
    and e.expires_at <= {schema}.clock();
  update {schema}.idempotency i
  set
    key = {schema}.key_hash(i.key),
    expires_at = {schema}.clock() + coalesce(
      (select t.key_ttl from {schema}.job_type t where t.name = i.job_type),
      interval '90 days'
    )
  from {schema}.job j
  where j.id = any (p_ids)
    and j.status <> 'running'
    and i.job = j.id
    and i.expires_at is null
    and not exists (
      select from {schema}.job_type t
      where t.name = i.job_type
        and t.key_scope <> 'ttl'
    );
  -- A success of a type with history = 'failures' has left its key and no row.
  p_ids := array(
    select i.id
    from unnest(p_ids) i(id)
    where not exists (select from {schema}.job j where j.id = i.id)
      and not exists (select from {schema}.job_history h where h.id = i.id)
  );
  if p_ids <> '{}' then
    update {schema}.idempotency i
    set key = {schema}.key_hash(i.key)
    where i.job = any (p_ids);
  end if;
end $$;
