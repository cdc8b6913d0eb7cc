-- Makes jobs, inserted for a batch in this transaction, its members. A batch without jobs ends at
-- once. SECURITY DEFINER: a producer needs no right on a table but INSERT on job.
-- Locks: none, because nobody else sees the batch yet.
create or replace function {schema}.batch_add(p_batch bigint, p_ids bigint[])
returns void
language plpgsql security definer
as $$
declare
  v_ids bigint[] := array(select i.id from unnest(p_ids) i(id) order by i.id);
begin
  insert into {schema}.batch_part (batch, first_id, last_id)
  select p_batch, v_ids[n.first], v_ids[least(n.first + 999, cardinality(v_ids))]
  from generate_series(1, cardinality(v_ids), 1000) n(first);
  update {schema}.batch b
  set total = cardinality(p_ids)
  where b.id = p_batch
    and b.ended_at is null;
  if p_ids = '{}' then
    insert into {schema}.batch_delta (batch) values (p_batch);
  end if;
end $$;
revoke execute on function {schema}.batch_add(bigint, bigint[]) from public;
