-- Returns the jobs that hold a key, of one type or of all types that ever had a key, by one index
-- descent for each. SECURITY DEFINER: a reader of the view needs no right on the keys, and gets ids
-- only. Raises without SELECT on the view.
create or replace function {schema}.key_jobs(p_job_type text, p_key text)
returns setof bigint
language sql stable security definer
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select i.job
  from {schema}.idempotency i
  where p_job_type is not null
    and {schema}.caller_check('jobs'::text, 'SELECT'::text)
    and i.job_type in (p_job_type, {schema}.canonical_type(p_job_type))
    and i.key = p_key
  union all
  select i.job
  from {schema}.key_types() k(name)
  join {schema}.idempotency i on i.job_type = k.name and i.key = p_key
  where p_job_type is null
    and {schema}.caller_check('jobs'::text, 'SELECT'::text)
$$;
