-- Deletes workers that have been gone for a day. Their releases are needed for an hour, to know
-- whether one of them can read a payload. Returns how many.
-- Locks: the rows of the workers, with SKIP LOCKED.
-- Keeps: M13, the list of workers covers one day; a release that was alive within the hour is still
--   known.
create or replace function {schema}.workers_forget(p_limit int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with gone as materialized (
    select w.name
    from {schema}.worker w
    where {schema}.last_seen(w.heartbeat_at, w.stopped_at) < {schema}.clock() - interval '1 day'
    limit p_limit
    for update skip locked
  )
  delete from {schema}.worker w
  using gone g
  where w.name = g.name;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
