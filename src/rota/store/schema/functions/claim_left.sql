-- Returns, for each queue and priority, the last of the picked jobs that a claim does not take, and
-- how many they are and how many of them were parked (for job_claim). p_run_ats runs parallel to
-- p_picked.
-- Locks: none; index job_pkey.
create or replace function {schema}.claim_left(
  p_picked bigint[],
  p_run_ats timestamptz[],
  p_taken bigint[]
)
returns table (queue text, priority smallint, run_at timestamptz, id bigint, jobs int, parked int)
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
  select
    j.queue, j.priority,
    (array_agg(p.run_at order by p.run_at desc, p.id desc))[1],
    (array_agg(p.id order by p.run_at desc, p.id desc))[1],
    count(*)::int,
    (count(*) filter (where j.status = 'waiting'))::int
  from unnest(p_picked, p_run_ats) p(id, run_at)
  join {schema}.job j on j.id = p.id
  where p.id not in (select unnest(p_taken))
  group by j.queue, j.priority
$$;
