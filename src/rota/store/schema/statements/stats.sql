-- Count the live jobs by status, each up to a limit.
-- Parameters: limit int
-- Rows: status text; jobs int8. A count at the limit means "at least".
-- Locks: none; indexes job_lease, job_dead and job_put_off, for statuses with few rows.
-- Keeps: M85, with a bound on the rows read.
select 'queued' as status, count(*) as jobs
from (select from :schema.job j where j.status = 'queued' limit :limit::int) counted
union all
select 'waiting', count(*)
from (select from :schema.job j where j.status = 'waiting' limit :limit::int) counted
union all
select 'running', count(*)
from (select from :schema.job j where j.status = 'running' limit :limit::int) counted
union all
select 'failed', count(*)
from (select from :schema.job j where j.status = 'failed' limit :limit::int) counted
union all
select 'dead', count(*)
from (select from :schema.job j where j.status = 'dead' limit :limit::int) counted
