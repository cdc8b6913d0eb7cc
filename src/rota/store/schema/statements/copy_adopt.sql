-- Prepare the copy of a dead job, inserted in this transaction, for a person who looks for the
-- error: with its steps, meta and progress, in no lane and no run of a schedule, and expired for
-- every worker. The transaction claims it next.
-- Parameters: id int8; dead int8
-- Rows: id int8. None: there is no such dead job.
-- Locks: the copy, which nobody else sees; indexes job_pkey, job_history_id, schedule_run_pkey.
-- Keeps: M44, no worker begins the handler; M82, it does not hold the next tick up.
with run as (
  delete from :schema.schedule_run r
  using :schema.job c
  where c.id = :id::int8
    and r.schedule = c.schedule
    and r.job = c.id
)
update :schema.job c
set
  origin_id = d.origin_id,
  meta = d.meta,
  progress = d.progress,
  schedule = null,
  group_key = null,
  group_capacity = null,
  expires_at = :schema.clock()
from :schema.jobs d
where c.id = :id::int8
  and d.id = :dead::int8
  and d.status = 'dead'
returning c.id
