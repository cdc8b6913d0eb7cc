-- Deletes breakers that have nothing more to say: they are closed, and their failures count no
-- longer; or no job has wanted to try for a day, also since a trial whose worker was lost. Returns
-- how many.
-- Locks: their rows, with SKIP LOCKED; it reads the whole table, once an hour.
-- Keeps: M13, the breakers of keys that are used no more go.
create or replace function {schema}.breakers_forget(p_limit int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with old as materialized (
    select b.name, b.key
    from {schema}.breaker b
    where not b.releasing
      and case b.state
        when 'closed' then (b.forget_at > {schema}.clock()) is not true
        else b.open_until < {schema}.clock() - interval '1 day'
      end
    limit p_limit
    for update skip locked
  )
  delete from {schema}.breaker b
  using old o
  where b.name = o.name
    and b.key = o.key;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
