-- Counts members that were deleted by hand as cancelled, in batches without a change for ten
-- minutes. Returns how many batches it mended.
-- Locks: none; indexes batch_live, batch_delta_batch, batch_part_pkey and job_pkey.
-- Keeps: M72, what follows a batch is not held up for ever.
create or replace function {schema}.batches_mend(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_batch {schema}.batch;
  v_count int := 0;
begin
  for v_batch in
    select b.*
    from {schema}.batch b
    where b.outcome is null
      and b.updated_at < {schema}.clock() - interval '10 minutes'
    order by b.updated_at
    limit p_limit
    for no key update skip locked
  loop
    if not exists (select from {schema}.batch_delta d where d.batch = v_batch.id)
      and not exists (
        select from {schema}.batch c
        where c.parent = v_batch.id
          and c.outcome is null
      )
      and not exists (
        select
        from {schema}.batch_part p
        join {schema}.job j on j.id between p.first_id and p.last_id
        where p.batch = v_batch.id
          and j.batch = v_batch.id
          and j.status <> 'dead'
      )
    then
      insert into {schema}.batch_delta (batch, cancelled)
      values (
        v_batch.id,
        v_batch.total - v_batch.succeeded - v_batch.dead - v_batch.cancelled
      );
      v_count := v_count + 1;
    end if;
    update {schema}.batch b
    set updated_at = {schema}.clock()
    where b.id = v_batch.id;
  end loop;
  return v_count;
end $$;
