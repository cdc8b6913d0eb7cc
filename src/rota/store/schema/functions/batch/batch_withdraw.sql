-- Takes back a batch that was opened in this transaction, because each of its jobs joined an
-- existing job by its key: the batch does not count in its parent. Returns the batch of the
-- existing jobs; NULL: they are not all of the same batch.
-- Locks: none; indexes batch_pkey, job_pkey and job_history_id.
create or replace function {schema}.batch_withdraw(p_batch bigint, p_joined bigint[])
returns bigint
language plpgsql
as $$
declare
  v_batches bigint[];
begin
  with withdrawn as (
    delete from {schema}.batch b
    where b.id = p_batch
      and b.total = 0
      and b.ended_at is null
    returning b.parent
  )
  insert into {schema}.batch_delta (batch, total)
  select w.parent, -1
  from withdrawn w
  where w.parent is not null;
  select array_agg(distinct coalesce(j.batch, 0)) into v_batches
  from {schema}.jobs j
  where j.id = any (p_joined);
  return case when cardinality(v_batches) = 1 then nullif(v_batches[1], 0) end;
end $$;
