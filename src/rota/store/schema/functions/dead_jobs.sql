-- Counts the dead jobs, up to p_limit, and returns when the oldest of them died.
create or replace function {schema}.dead_jobs(p_limit int)
returns table (jobs bigint, oldest_at timestamptz)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  select count(*), min(d.failed_at)
  from (
    select j.failed_at
    from {schema}.job j
    where j.status = 'dead'
    order by j.failed_at
    limit p_limit
  ) d
$$;
