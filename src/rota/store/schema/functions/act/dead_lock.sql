-- Locks the rows of these jobs, in id order, and returns the dead jobs among them.
create or replace function {schema}.dead_lock(p_ids bigint[])
returns bigint[]
language sql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select array(
    select mine.id
    from (
      select j.id, j.status
      from {schema}.job j
      where j.id = any (p_ids)
      order by j.id
      for update
    ) mine
    where mine.status = 'dead'
  )
$$;
