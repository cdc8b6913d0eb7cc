-- Deletes figures that are older than the setting. Returns how many rows it deleted.
-- Locks: the rows of the figures, with SKIP LOCKED; index stat_hour_pkey.
-- Keeps: M13, the table of figures stops growing.
create or replace function {schema}.figures_forget(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  with old as materialized (
    select s.hour, s.job_type, s.queue
    from {schema}.stat_hour s
    where s.hour < {schema}.clock() - (
      select r.keep
      from {schema}.retention r
      where r.what = 'figures'
    )
    order by s.hour, s.job_type, s.queue
    limit p_limit
    for update skip locked
  )
  delete from {schema}.stat_hour s
  using old o
  where s.hour = o.hour
    and s.job_type = o.job_type
    and s.queue = o.queue;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
