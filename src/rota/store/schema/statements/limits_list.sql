-- List the rate limits, by name.
-- Parameters: name text (only this one; NULL: all)
-- Rows: name text; starts int; per_s float8; burst int; keyed bool; changed_at timestamptz;
--   changed_by text; changed_why text; waiting_keys int; waiting int; next_at timestamptz
-- Locks: none; indexes rate_limit_pkey, rate_limit_key_pkey and job_waits.
-- Keeps: M62, a limit that everybody can see.
select
  l.name, l.starts, extract(epoch from l.per)::float8 as per_s, l.burst, l.keyed,
  l.changed_at, l.changed_by, l.changed_why,
  l.waiting_keys, l.waiting, l.next_at
from :schema.limits l
where :name::text is null
  or l.name = :name::text
order by l.name
