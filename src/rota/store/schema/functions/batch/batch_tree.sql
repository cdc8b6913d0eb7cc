-- Returns a batch and all batches in it.
-- Locks: none; index batch_parent.
create or replace function {schema}.batch_tree(p_batch bigint)
returns setof bigint
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with recursive tree as (
    select p_batch as id
    union all
    select b.id
    from tree t
    join {schema}.batch b on b.parent = t.id
  )
  select t.id
  from tree t
$$;
