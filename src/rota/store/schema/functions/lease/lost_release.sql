-- Returns the release of a worker that lost a job, by the attempt that the reaper recorded; NULL:
-- it was no loss, or the worker is no longer known.
create or replace function {schema}.lost_release(p_worker text, p_error_type text)
returns text
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select w.release
  from {schema}.worker w
  where w.name = p_worker
    and p_error_type = 'LeaseExpired'
$$;
