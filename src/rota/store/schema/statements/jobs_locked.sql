-- Find which of these jobs another session's open transaction has locked.
-- Parameters: ids int8[]
-- Rows: id int8
-- Locks: the rows that are free, with SKIP LOCKED, while the statement lasts; index job_pkey.
-- Keeps: M2, a row that cannot be written does not stop its neighbours from being written.
with free as materialized (
  select j.id
  from :schema.job j
  where j.id = any (:ids::int8[])
  for update skip locked
)
select j.id
from :schema.job j
where j.id = any (:ids::int8[])
  and j.id not in (select free.id from free)
