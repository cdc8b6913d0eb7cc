-- Find ended jobs that ran at the time of their erasure, if one statement cannot erase them all.
-- Parameters: limit int
-- Rows: id int8
-- Locks: none; indexes erasure_pkey and job_pkey.
-- Keeps: M45, one job that cannot be erased does not hold back the others.
select e.job as id
from :schema.erasure e
where not exists (select from :schema.job j where j.id = e.job and j.status = 'running')
order by e.job
limit :limit::int
