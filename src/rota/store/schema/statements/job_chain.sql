-- Find the first hundred jobs of a chain: the original, and the jobs as which it was requeued.
-- Parameters: job int8
-- Rows: id int8
-- Locks: none; indexes job_pkey, job_history_id and action_job.
-- Keeps: M44, the origin of a job leads to everything that was tried.
with recursive chain(id, depth) as (
  select
    coalesce(
      (select v.origin_id from :schema.jobs v where v.id = :job::int8 limit 1),
      :job::int8
    ),
    1
  union
  select next.id, c.depth + 1
  from chain c
  cross join lateral (
    select (a.detail ->> 'requeued_as'::text)::int8
    from :schema.action a
    where a.job = c.id
      and a.detail ? 'requeued_as'::text
    union
    select (v.resolution ->> 'requeued_as'::text)::int8
    from :schema.jobs v
    where v.id = c.id
      and v.resolution ? 'requeued_as'::text
  ) next(id)
  where c.depth < 100
)
select c.id
from (
  select c.id
  from chain c
  union
  select :job::int8
) c
order by c.id
limit 100
