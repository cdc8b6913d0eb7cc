-- Make the copy of a dead job, which this transaction has inserted, one for a person who looks for
-- the error: it has the steps, the meta and the progress of the dead one, is in no lane, and to
-- every worker has expired. The transaction claims it next.
-- Parameters: id int8; dead int8
-- Rows: id int8. None: there is no such dead job.
-- Locks: the row of the copy, which nobody else sees yet; indexes job_pkey and job_history_id.
-- Keeps: M44, no worker begins the handler.
update :schema.job c
set
  origin_id = d.origin_id,
  meta = d.meta,
  progress = d.progress,
  group_key = null,
  group_capacity = null,
  expires_at = :schema.clock()
from :schema.jobs d
where c.id = :id::int8
  and d.id = :dead::int8
  and d.status = 'dead'
returning c.id
