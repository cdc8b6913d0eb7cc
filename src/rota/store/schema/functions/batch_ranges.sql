-- Returns the ranges in which the ids of the members of a batch lie (for jobs_find). Other jobs may
-- lie there too.
-- SECURITY DEFINER: a reader of the views needs no right on the table. This function returns ids.
-- Locks: none; index batch_part_pkey.
create or replace function {schema}.batch_ranges(p_batch bigint)
returns table (first_id bigint, last_id bigint)
language sql stable security definer rows 10
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  select p.first_id, p.last_id
  from {schema}.batch_part p
  where p.batch = p_batch
$$;
