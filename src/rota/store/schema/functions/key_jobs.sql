-- Returns the jobs that hold a key, of one type or of all types that ever had a key: one index
-- descent per type. SECURITY DEFINER: a reader of the view needs no right on the keys. This
-- function returns ids, the view the rest.
create or replace function {schema}.key_jobs(p_job_type text, p_key text)
returns setof bigint
language sql stable security definer
set enable_seqscan = off set enable_bitmapscan = off set search_path = pg_catalog, pg_temp
as $$
  with recursive kind(name) as (
    (
      select i.job_type
      from {schema}.idempotency i
      order by i.job_type
      limit 1
    )
    union all
    select (
      select i.job_type
      from {schema}.idempotency i
      where i.job_type > k.name
      order by i.job_type
      limit 1
    )
    from kind k
    where k.name is not null
  )
  select i.job
  from {schema}.idempotency i
  where p_job_type is not null
    and i.job_type in (p_job_type, {schema}.canonical_type(p_job_type))
    and i.key = p_key
  union all
  select i.job
  from kind k
  join {schema}.idempotency i on i.job_type = k.name and i.key = p_key
  where p_job_type is null
$$;
