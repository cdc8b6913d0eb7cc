-- List due jobs that no job of their lane holds back, in the order in which a worker starts them.
-- Parameters: limit int
-- Rows: id int8; job_type text
-- Locks: none; indexes job_ready and job_lane.
-- Keeps: M50, a test runs all that is due; its tables are small.
select j.id, j.job_type
from :schema.job j
where j.status in ('queued', 'failed')
  and j.run_at <= :schema.clock()
  and (
    j.group_key is null
    or j.in_lane
    or j.id in (select h.id from :schema.lane_heads(array[j.group_key]) h)
  )
  and j.queue <> all (:schema.paused_queues(array[j.queue]))
order by j.priority desc, j.run_at, j.id
limit :limit::int
