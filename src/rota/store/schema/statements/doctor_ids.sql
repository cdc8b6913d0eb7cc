-- Find sequences that are behind the ids that they have given.
-- Parameters: none
-- Rows: facts text (JSON: behind: sequence, last_id, highest_id)
-- Locks: none; indexes job_pkey, job_history_id, attempt_job and action_pkey.
-- Keeps: M2; no job gets the id of another.
select json_build_object(
  'behind', coalesce(json_agg(b order by b.sequence), '[]')
)::text as facts
from :schema.ids_behind() b
