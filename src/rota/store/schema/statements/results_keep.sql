-- Write what handlers returned whose transactions had finished their jobs before.
-- Parameters: ids int8[]; claims int4[]; results text[]
-- Rows: id int8
-- Locks: the rows of the jobs; index job_history_id.
-- Keeps: M32, a result goes to its own claim only; a result that was committed with the job stays.
update :schema.job_history h
set result = r.result::jsonb
from unnest(:ids::int8[], :claims::int4[], :results::text[]) r(id, claim, result)
where h.id = r.id
  and h.claims = r.claim
  and h.status = 'succeeded'
  and h.result is null
returning h.id
