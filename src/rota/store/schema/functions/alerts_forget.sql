-- Deletes alerts that have been over for 30 days. Returns how many.
-- Locks: the rows of the alerts, with SKIP LOCKED.
-- Keeps: M13, the table of alerts stops growing.
create or replace function {schema}.alerts_forget(p_limit int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with old as materialized (
    select a.rule, a.subject
    from {schema}.alert a
    where a.over_at < {schema}.clock() - interval '30 days'
    limit p_limit
    for update skip locked
  )
  delete from {schema}.alert a
  using old o
  where a.rule = o.rule
    and a.subject = o.subject;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
