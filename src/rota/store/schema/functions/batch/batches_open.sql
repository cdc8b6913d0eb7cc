-- Returns up to p_limit batches with a member that has not ended, the last changed first.
-- Locks: none; indexes batch_live and batch_delta_batch.
-- Keeps: M72, progress that a UI can show.
create or replace function {schema}.batches_open(p_limit int)
returns table (
  id bigint,
  total int,
  succeeded int,
  dead int,
  cancelled int,
  made_at timestamptz
)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
begin
  return query
  select b.id, b.total, b.succeeded, b.dead, b.cancelled, b.created_at
  from (
    select l.id, l.updated_at
    from {schema}.batch l
    where l.outcome is null
    order by l.updated_at desc
    limit p_limit
  ) l
  join {schema}.batches b on b.id = l.id
  order by l.updated_at desc;
end $$;
