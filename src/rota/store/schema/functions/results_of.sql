-- Returns what came of jobs that another one has waited for (see job_end), of each that has ended.
-- `job` is the one that ended: the last one as which the first was requeued.
-- Locks: none; indexes as of job_end.
create or replace function {schema}.results_of(p_ids bigint[])
returns table (
  id bigint,
  job bigint,
  outcome text,
  result text,
  error_type text,
  message text
)
language sql stable
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
  select
    a.id,
    e.job,
    e.outcome,
    e.result::text,
    case when e.outcome in ('dead', 'ignored') then e.error_type end,
    case when e.outcome in ('dead', 'ignored', 'cancelled') then e.message end
  from unnest(p_ids) a(id)
  cross join lateral {schema}.job_end(a.id) e
  where e.outcome is not null
$$;
