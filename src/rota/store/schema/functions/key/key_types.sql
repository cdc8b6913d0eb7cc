-- Returns the types of which a job ever had a key: one descent of the index for each.
-- Locks: none; index idempotency_pkey.
create or replace function {schema}.key_types()
returns setof text
language sql stable rows 20
set enable_seqscan = off set enable_bitmapscan = off
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
  select k.name
  from kind k
  where k.name is not null
$$;
