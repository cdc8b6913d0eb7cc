-- Returns which job holds a key, for each type under which it is taken; with p_job_type (a former
-- name counts) only for that type. Without p_job_type, an expired key is not taken.
-- Locks: none; index idempotency_pkey: one descent for each type that ever had a key.
create or replace function {schema}.key_find(p_key text, p_job_type text)
returns table (job_type text, id bigint, status text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  with asked as (
    select {schema}.canonical_type(p_job_type) as name
    where p_job_type is not null
    union
    select {schema}.canonical_type(k.name)
    from {schema}.key_types() k(name)
    join {schema}.idempotency i on i.job_type = k.name and i.key = p_key
    where p_job_type is null
      and (i.expires_at is null or i.expires_at > {schema}.clock())
  )
  select a.name, holder.id, holder.status
  from asked a
  cross join lateral {schema}.keys_held(array[a.name], array[p_key]) holder
  order by a.name
$$;
