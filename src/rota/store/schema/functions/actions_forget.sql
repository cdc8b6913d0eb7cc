-- Deletes entries of the audit log that are older than the setting. Returns how many.
-- Locks: the rows of the actions, with SKIP LOCKED; index action_at.
-- Keeps: M13, the audit log stops growing.
create or replace function {schema}.actions_forget(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with old as materialized (
    select a.id
    from {schema}.action a
    where a.at < {schema}.clock() - (
      select r.keep
      from {schema}.retention r
      where r.what = 'actions'
    )
    order by a.at
    limit p_limit
    for update skip locked
  )
  delete from {schema}.action a
  using old o
  where a.id = o.id;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
