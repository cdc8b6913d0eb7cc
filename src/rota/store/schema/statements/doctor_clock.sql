-- Read the clock by which jobs are due.
-- Parameters: none
-- Rows: facts text (JSON: at, in seconds since 1970)
-- Locks: none.
-- Keeps: M22.
select json_build_object('at', extract(epoch from :schema.clock()))::text as facts
