-- Makes jobs, inserted for a batch in this transaction, its members, and returns the batch. A batch
-- without jobs ends at once. p_joined: the existing jobs that took the place of all jobs, by their
-- keys; then the batch is withdrawn, and the batch of these jobs is returned.
-- SECURITY DEFINER: a producer needs no right on a table but INSERT on job.
-- Locks: none, because nobody else sees the batch yet.
create or replace function {schema}.batch_add(
  p_batch bigint,
  p_ids bigint[],
  p_joined bigint[] default '{}'
)
returns bigint
language plpgsql security definer
as $$
declare
  v_ids bigint[] := array(select i.id from unnest(p_ids) i(id) order by i.id);
begin
  if p_ids = '{}' and p_joined <> '{}' then
    return {schema}.batch_withdraw(p_batch, p_joined);
  end if;
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
  return p_batch;
end $$;
revoke execute on function {schema}.batch_add(bigint, bigint[], bigint[]) from public;
