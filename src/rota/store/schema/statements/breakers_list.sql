-- List breakers by name and key; breakers that are not closed first.
-- Parameters: name text (NULL: all); limit int
-- Rows: name text; key text; state text; failures int4; openings int4; open_until timestamptz;
--   opened_at timestamptz; trial_job int8; waiting int4; reason text; changed_at timestamptz;
--   changed_by text
-- Locks: none; it reads the tables breaker and job_type whole, and index job_waits.
-- Keeps: M63, what a breaker holds up is visible.
select
  b.name, b.key, b.state, b.failures, b.openings, b.open_until,
  b.opened_at, b.trial_job, b.waiting, b.reason, b.changed_at, b.changed_by
from :schema.breakers b
where :name::text is null
  or b.name = :name::text
order by b.state = 'closed', b.name, b.key nulls first
limit :limit::int
