-- Read a job that has not ended; no row: there is none. Without history, one plan serves all days.
-- Parameters: id int8
-- Rows: {job}.
-- Locks: none; index job_pkey.
-- Keeps: M85, a job at the price of one row.
select
  {job}
from :schema.jobs v
where v.id = :id::int8
  and v.finished_at is null
