-- List the declared job types.
-- Parameters: none
-- Rows: {job_type}.
-- Locks: none.
-- Keeps: M40, the retry rules can be printed.
select
  {job_type}
from :schema.job_type
order by name
