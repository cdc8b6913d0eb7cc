-- Count the jobs of a batch that are not over, by status, up to a limit in all.
-- Parameters: batch int8; limit int
-- Rows: status text; jobs int4
-- Locks: none; indexes batch_part_pkey and job_pkey.
-- Keeps: M72, progress that a UI can show.
select o.status, count(*)::int as jobs
from (
  select j.status
  from :schema.batch_part p
  cross join lateral (
    select l.status
    from :schema.job l
    where l.id between p.first_id and p.last_id
      and l.batch = :batch::int8
  ) j
  where p.batch = :batch::int8
  limit :limit::int
) o
group by o.status
order by o.status
