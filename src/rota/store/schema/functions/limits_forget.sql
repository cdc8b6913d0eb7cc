-- Deletes what is known of keys whose starts lie a day or longer in the past: they are as free as
-- keys of which nothing is known. Returns how many.
-- Locks: the rows, with SKIP LOCKED. It reads the whole table, once an hour.
-- Keeps: M13, a limit per customer leaves no row for each customer there ever was.
create or replace function {schema}.limits_forget(p_limit int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := {schema}.clock() - interval '1 day';
  v_count int;
begin
  delete from {schema}.rate_limit_key k
  using (
    select o.name, o.key, o.version
    from {schema}.rate_limit_key o
    where greatest(o.tat, o.estimated_to, o.again_to, o.urgent_to) < v_before
    limit p_limit
    for update skip locked
  ) old
  where k.name = old.name
    and k.key = old.key
    and k.version = old.version;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
