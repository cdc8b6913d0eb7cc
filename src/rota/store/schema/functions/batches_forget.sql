-- Deletes batches that ended longer ago than history is kept, and those with dead members longer
-- ago than dead jobs are kept. Returns how many.
-- Locks: their rows, with SKIP LOCKED; indexes batch_ended and batch_part_pkey.
-- Keeps: M13, the table of batches stops growing.
create or replace function {schema}.batches_forget(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_history interval := (select r.keep from {schema}.retention r where r.what = 'history');
  v_dead interval := (select r.keep from {schema}.retention r where r.what = 'dead');
  v_old bigint[] := array(
    select b.id
    from {schema}.batch b
    where b.ended_at < {schema}.clock() - v_history
      and (b.dead = 0 or b.ended_at < {schema}.clock() - v_dead)
    order by b.ended_at
    limit p_limit
    for update skip locked
  );
begin
  delete from {schema}.batch_part p
  where p.batch = any (v_old);
  delete from {schema}.batch b
  where b.id = any (v_old);
  return cardinality(v_old);
end $$;
