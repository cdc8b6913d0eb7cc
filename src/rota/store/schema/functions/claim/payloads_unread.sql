-- Returns up to p_limit types, by name, with jobs that have waited since before p_before for a
-- release which can read their payloads: how many jobs, counted up to p_counted; since when the
-- next job waits, and until when a release that has tried leaves it to others (job_claim); which
-- releases have tried, and their error. Doctor and the alert rules judge by it.
-- Locks: none; indexes job_waits and job_pkey.
-- Keeps: M86, what is held back is seen; M12.
create or replace function {schema}.payloads_unread(
  p_before timestamptz,
  p_limit int,
  p_counted int
)
returns table (
  job_type text,
  jobs int,
  since timestamptz,
  until timestamptz,
  releases text[],
  error text
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select
    substr(w.waits_for, length('payload ') + 1),
    w.jobs,
    w.next_since,
    next.run_at + interval '1 hour',
    next.mismatched_releases,
    next.last_error
  from {schema}.waits('payload'::text, p_limit, p_counted) w
  join {schema}.job next on next.id = w.next_job
  where w.next_since < p_before
$$;
