-- Makes one of the jobs that wait for a breaker due at p_at, the first in their order: so the next
-- trial need not wait for a job that was handed back for longer.
-- Locks: that job, with SKIP LOCKED; index job_waits.
create or replace function {schema}.breaker_recall(p_name text, p_key text, p_at timestamptz)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
begin
  with first as materialized (
    select j.id
    from {schema}.job j
    where j.waits_for = {schema}.breaker_waits_for(p_name, p_key)
      and j.status in ('queued', 'failed', 'waiting')
    order by j.priority desc, j.run_at, j.id
    limit 1
    for no key update skip locked
  )
  update {schema}.job j
  set run_at = greatest(p_at, {schema}.clock())
  from first f
  where j.id = f.id
    and j.run_at > p_at;
end $$;
