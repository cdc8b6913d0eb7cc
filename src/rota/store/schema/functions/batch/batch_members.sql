-- Returns the members of a batch that have not ended or are dead, by id, from behind p_after on.
-- Locks: none; indexes batch_part_pkey and job_pkey.
create or replace function {schema}.batch_members(p_batch bigint, p_after bigint, p_limit int)
returns setof bigint
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select j.id
  from {schema}.batch_part p
  cross join lateral (
    select j.id
    from {schema}.job j
    where j.id between greatest(p.first_id, p_after + 1) and p.last_id
      and j.batch = p_batch
  ) j
  where p.batch = p_batch
    and p.last_id > p_after
  order by p.first_id, j.id
  limit p_limit
$$;
