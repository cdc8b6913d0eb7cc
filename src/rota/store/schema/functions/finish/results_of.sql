-- Returns for these waiters how the jobs that they waited for ended (see job_end); `job` is the
-- last one as which the awaited job was requeued. A job that a person let run before its last wait
-- is over gets nothing of that wait: so it waits again.
-- Locks: none; indexes as of job_end.
create or replace function {schema}.results_of(p_waiters bigint[])
returns table (
  waiter bigint,
  id bigint,
  job bigint,
  outcome text,
  result text,
  error_type text,
  message text
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
  select
    w.id,
    a.id,
    e.job,
    e.outcome,
    e.result::text,
    case when e.outcome in ('dead', 'archived') then e.error_type end,
    case when e.outcome in ('dead', 'archived', 'cancelled') then e.message end
  from {schema}.job w
  cross join lateral (
    select told.id, min(told.place) as place
    from unnest(
      {schema}.wait_ids(w.meta, 'before'::text)
        || case
          when {schema}.wait_next(w.meta) is null
            then {schema}.wait_ids(w.meta, 'jobs'::text)
        end
    ) with ordinality told(id, place)
    group by told.id
  ) a
  cross join lateral {schema}.job_end(a.id) e
  where w.id = any (p_waiters)
    and e.outcome is not null
  order by w.id, a.place
$$;
