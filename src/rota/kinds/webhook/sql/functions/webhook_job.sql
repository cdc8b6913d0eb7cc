-- Returns the job that brings a delivery now: the last requeue or rerun of p_job. A dead job's own
-- row names its successor, because the log of actions may be kept for a shorter time.
-- Locks: none; indexes action_job and job_history_id.
create or replace function {schema}.webhook_job(p_job bigint)
returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive chain(id) as (
    select p_job
    union
    select n.id
    from chain c
    cross join lateral (
      select coalesce(a.detail ->> 'requeued_as', a.detail ->> 'run_again_as')::bigint
      from {schema}.action a
      where a.job = c.id
        and a.detail ?| array['requeued_as', 'run_again_as']
      union all
      select (h.resolution ->> 'requeued_as')::bigint
      from {schema}.job_history h
      where h.id = c.id
        and h.resolution ? 'requeued_as'
    ) n(id)
  )
  select max(c.id)
  from chain c
$$;
