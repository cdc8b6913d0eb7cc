-- Says of jobs that were inserted for a batch, in this transaction, that they are its members.
-- Without any, the batch ends at once.
-- SECURITY DEFINER: a producer needs no right on a table but INSERT on job.
-- Locks: none, because nobody else sees the batch yet.
create or replace function {schema}.batch_add(p_batch bigint, p_ids bigint[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into {schema}.batch_part (batch, first_id, last_id)
  select p_batch, min(n.id), max(n.id)
  from (
    select i.id, row_number() over (order by i.id) - 1 as place
    from unnest(p_ids) i(id)
  ) n
  group by n.place / 1000;
  update {schema}.batch b
  set total = cardinality(p_ids)
  where b.id = p_batch
    and b.ended_at is null;
  if p_ids = '{}' then
    insert into {schema}.batch_delta (batch) values (p_batch);
  end if;
end $$;
revoke execute on function {schema}.batch_add(bigint, bigint[]) from public;
