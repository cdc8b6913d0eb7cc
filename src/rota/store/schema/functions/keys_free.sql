-- Frees keys of jobs that a person has deleted from the table: their jobs never ended, so they have
-- no expiry, and would be held for ever. Reads up to p_limit keys of live jobs, those of the oldest
-- first, from the job after p_after on. Returns how many it read and freed, and the last job. A key
-- with an expiry is never freed here: its job has ended, and may have left no row.
-- Locks: the rows of the keys that it frees, with SKIP LOCKED; indexes idempotency_live and
--   job_pkey.
-- Keeps: M51, a key is held while its job is live, and not for ever. A job and its key are always
--   committed together, and so are the end of a job and the expiry of its key.
create or replace function {schema}.keys_free(p_after bigint, p_limit int)
returns table (read int, freed int, last_job bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  with held as materialized (
    select i.job_type, i.key, i.job
    from {schema}.idempotency i
    where i.expires_at is null
      and i.job > p_after
    order by i.job
    limit p_limit
  ),
  orphan as materialized (
    select i.job_type, i.key
    from held h
    join {schema}.idempotency i on i.job_type = h.job_type and i.key = h.key
    where i.expires_at is null
      and not exists (select from {schema}.job j where j.id = i.job)
    for update of i skip locked
  ),
  gone as (
    delete from {schema}.idempotency i
    using orphan o
    where i.job_type = o.job_type
      and i.key = o.key
    returning i.key
  )
  select
    (select count(*) from held)::int,
    (select count(*) from gone)::int,
    (select max(h.job) from held h);
end $$;
