-- Read what jobs wait for: lanes, caps, rate limits and breakers.
-- Parameters: names int (most names of each kind); limit int (most jobs to count of each)
-- Rows: facts text (JSON: as waits_now)
-- Locks: none; indexes job_waits and job_put_off.
-- Keeps: M85, with a bound on the rows read.
select :schema.waits_now(:names::int, :limit::int)::text as facts
