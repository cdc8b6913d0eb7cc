-- Moves jobs that no worker holds to history: cancelled jobs, whose rows have the reason, or dead
-- jobs with a resolution each (p_resolutions runs parallel to p_ids). The caller has locked their
-- rows. Returns the jobs that it moved.
create or replace function {schema}.job_to_history(
  p_ids bigint[],
  p_status text,
  p_resolutions jsonb[] default null
)
returns setof bigint
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
  select finished.id
  from (
    select
      array_agg(j.id) as ids,
      array_agg(j.claims) as claims,
      array_agg(p_status) as statuses,
      array_agg(case when p_status = 'cancelled' then j.cancel_reason end) as reasons,
      array_agg(r.resolution) as resolutions
    from unnest(p_ids, p_resolutions) r(id, resolution)
    join {schema}.job j on j.id = r.id and j.status <> 'running'
  ) a
  cross join lateral {schema}.job_finish(
    a.ids, a.claims, a.statuses,
    null::bigint[], null::text[],
    a.reasons, a.resolutions, null::text
  ) finished(id)
$$;
