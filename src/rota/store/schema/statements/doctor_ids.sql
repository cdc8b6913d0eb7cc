-- Find sequences that are behind the ids that they have given.
-- Parameters: limit int (keys of finished jobs, and runs of schedules, to read: the latest)
-- Rows: facts text (JSON: behind: sequence, last_id, highest_id)
-- Locks: none; the indexes of ids_behind.
-- Keeps: M2; no job gets the id of another.
select json_build_object(
  'behind', coalesce(json_agg(b order by b.sequence), '[]')
)::text as facts
from :schema.ids_behind(:limit::int) b
