-- Returns the job that holds each key. A key with an expiry whose job has left no row belongs to a
-- success, because a cancel frees the key, unless an erasure cancels. Without an expiry it is free:
-- key_take.
-- Locks: none; index idempotency_pkey.
-- Keeps: M51, the second caller gets the id and status of the first job.
create or replace function {schema}.keys_held(p_job_types text[], p_keys text[])
returns table (place bigint, id bigint, status text)
language sql stable
set enable_seqscan = off
as $$
  select
    asked.n,
    held.job,
    coalesce(
      (select j.status from {schema}.job j where j.id = held.job),
      (select h.status from {schema}.job_history h where h.id = held.job limit 1),
      'succeeded'
    )
  from unnest(p_job_types, p_keys) with ordinality asked(job_type, key, n)
  cross join lateral (select {schema}.canonical_type(asked.job_type) as name) called
  cross join lateral (
    select {schema}.key_hash(asked.key) as key
    where (select n.keys_erased from {schema}.installation n)
    union all
    select null
    limit 1
  ) erased
  left join {schema}.job_type t on t.name = called.name
  cross join lateral (
    -- One array, not "or", with which PostgreSQL before 18 reads all of the index for each key.
    select i.job
    from {schema}.idempotency i
    where i.job_type = any (array_append(t.aliases, called.name))
      and i.key = any (array[asked.key, erased.key])
      and (i.expires_at is not null or exists (select from {schema}.job j where j.id = i.job))
    order by i.key <> asked.key, i.job_type <> called.name
    limit 1
  ) held
$$;
