-- Find the jobs that the reaper would take, when one statement cannot take them all.
-- Parameters: since timestamptz (read the lease index from there on); limit int
-- Rows: id int8
-- Locks: none; index job_lease.
-- Keeps: M31, one job that cannot be taken does not hold back the others.
select j.id
from :schema.job j
where j.status = 'running'
  and j.locked_until >= :since::timestamptz
  and j.locked_until < :schema.clock()
order by j.locked_until
limit :limit::int
