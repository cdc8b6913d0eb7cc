-- Returns the ranges in which the ids of a batch's members lie, and when it was made (for
-- jobs_find). Other jobs may lie there too. SECURITY DEFINER: a reader of the view rota.jobs needs
-- no right on the tables of batches. Raises without SELECT on the view.
-- Locks: none; indexes batch_pkey and batch_part_pkey.
create or replace function {schema}.batch_ranges(p_batch bigint)
returns table (first_id bigint, last_id bigint, made_at timestamptz)
language sql stable security definer rows 10
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select p.first_id, p.last_id, b.created_at
  from {schema}.batch b
  join {schema}.batch_part p on p.batch = b.id
  where b.id = p_batch
    and {schema}.caller_check('jobs'::text, 'SELECT'::text)
$$;
