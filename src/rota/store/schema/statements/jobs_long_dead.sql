-- Find the jobs that have been dead for as long as dead jobs are kept and do not halt their lanes,
-- if one statement cannot archive them all.
-- Parameters: limit int
-- Rows: id int8
-- Locks: none; index job_dead.
-- Keeps: M13, one job that cannot be archived does not hold back the others.
select j.id
from :schema.job j
where j.status = 'dead'
  and j.in_lane is not true
  and j.failed_at
    < :schema.clock() - (select r.keep from :schema.retention r where r.what = 'dead')
order by j.failed_at
limit :limit::int
