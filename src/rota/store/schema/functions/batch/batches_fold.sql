-- Counts the new changes of batches, and enqueues what follows ended batches: once, because then_at
-- is set in the same transaction, under the lock of the batch. A refused follow-up is tried again
-- after ten seconds. Returns whether more may be left.
-- Locks: the batches, SKIP LOCKED; indexes batch_delta_batch, batch_then_failed; as jobs_insert.
-- Keeps: M72, the follow-up is enqueued exactly once, whoever dies.
create or replace function {schema}.batches_fold(p_limit int)
returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_named bigint[] := array(select d.batch from {schema}.batch_delta d limit p_limit);
  v_ids bigint[];
  v_batch {schema}.batch;
  v_outcome text;
begin
  v_ids := array(
    select b.id
    from {schema}.batch b
    where b.id = any (
      v_named
      || array(
        select f.id
        from {schema}.batch f
        where f.then_error is not null
          and f.updated_at < {schema}.clock() - interval '10 seconds'
        limit p_limit
      )
    )
    order by b.id
    for no key update skip locked
  );
  -- Changes of batches without a row: a producer made the number up, or retention deleted them.
  delete from {schema}.batch_delta d
  where d.batch = any (
    array(
      select n.id
      from (select distinct u.id from unnest(v_named) u(id)) n
      where not exists (select from {schema}.batch b where b.id = n.id)
    )
  );
  with come as (
    delete from {schema}.batch_delta d
    where d.ctid = any (array(
      select c.ctid
      from {schema}.batch_delta c
      where c.batch = any (v_ids)
      limit p_limit
    ))
    returning d.*
  ),
  sums as materialized (
    select
      c.batch, sum(c.total) as total, sum(c.succeeded) as succeeded, sum(c.dead) as dead,
      sum(c.cancelled) as cancelled
    from come c
    group by c.batch
  )
  update {schema}.batch b
  set
    total = b.total + s.total,
    succeeded = b.succeeded + s.succeeded,
    dead = b.dead + s.dead,
    cancelled = b.cancelled + s.cancelled,
    updated_at = {schema}.clock()
  from sums s
  where b.id = s.batch;
  for v_batch in
    select b.*
    from {schema}.batch b
    where b.id = any (v_ids)
    order by b.id
  loop
    v_outcome := case
      when v_batch.succeeded + v_batch.dead + v_batch.cancelled < v_batch.total then null
      when v_batch.succeeded = v_batch.total then 'succeeded'
      else 'failed'
    end;
    if v_outcome is distinct from v_batch.outcome then
      insert into {schema}.batch_delta (batch, succeeded, dead)
      select
        v_batch.parent,
        coalesce(sum(o.sign) filter (where o.outcome = 'succeeded'), 0),
        coalesce(sum(o.sign) filter (where o.outcome = 'failed'), 0)
      from (values (v_batch.outcome, -1), (v_outcome, 1)) o(outcome, sign)
      where v_batch.parent is not null
      having count(*) > 0;
      update {schema}.batch b
      set
        outcome = v_outcome,
        ended_at = coalesce(b.ended_at, {schema}.clock())
      where b.id = v_batch.id;
    end if;
    if v_batch.then_at is null
      and v_batch.then_jobs is not null
      and (v_outcome = 'succeeded' or v_outcome = 'failed' and v_batch.on_failure = 'continue')
    then
      perform {schema}.batch_follow(v_batch.id, v_outcome);
    end if;
  end loop;
  return exists (select from {schema}.batch_delta);
end $$;
