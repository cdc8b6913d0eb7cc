-- Returns from when on a reader adds to the figures what the roll-up has not: from the time up to
-- which they are complete, or from p_since if that is later. NULL: the reader leaves it to the
-- roll-up, because it is too much, or history no longer has one of its days. Too much is 32 MiB of
-- history or 20,000 attempts: a worker rolls up each minute, so only a busy one leaves more, and a
-- reader must not wait for seconds.
create or replace function {schema}.figures_tail(p_since timestamptz)
returns timestamptz
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select f.tail
  from (
    select greatest(r.complete_to, p_since) as tail
    from {schema}.stat_rollup r
  ) f
  where f.tail <= {schema}.clock()
    and (
      select bool_and(t.blocks is not null)
        and sum(t.blocks - t.first_block)
          <= 32 * 1024 * 1024 / current_setting('block_size')::int
      from {schema}.history_tails(f.tail) t
    )
    and (
      select count(*)
      from (
        select from {schema}.attempt a
        where a.finished_at >= f.tail
        limit 20001
      ) counted
    ) <= 20000
$$;
