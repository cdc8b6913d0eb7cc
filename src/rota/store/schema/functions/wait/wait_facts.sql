-- Returns for which jobs a job waits, as JSON: job (one that has not ended; NULL: all have), its
-- status, total, left (how many have not ended) and stuck (as of wait_stuck). NULL: none.
-- Locks: none; indexes as of job_end.
create or replace function {schema}.wait_facts(p_id bigint)
returns json
language sql stable
as $$
  select json_build_object(
    'job', n.id,
    'status', n.status,
    'total', cardinality(w.ids),
    'left', (
      select count(*)
      from unnest(w.ids) a(id)
      cross join lateral {schema}.job_end(a.id) e
      where e.outcome is null
        or e.outcome = 'dead' and w.holds
    ),
    'stuck', {schema}.wait_stuck(p_id)
  )
  from {schema}.job j
  cross join lateral (
    select
      {schema}.wait_ids(j.meta, 'jobs'::text) as ids,
      j.meta #>> '{rota.waits,on_failure}' = 'wait' as holds
  ) w
  left join {schema}.job n on n.id = {schema}.wait_next(j.meta)
  where j.id = p_id
    and j.status = 'waiting'
    and j.waits_for like 'job %'
$$;
