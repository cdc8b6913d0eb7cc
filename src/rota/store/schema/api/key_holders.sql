-- Returns the job that holds each key, as keys_held, to a producer whose job is refused: the id and
-- the status, nothing else. SECURITY DEFINER: it refuses a caller that may not insert.
-- Keeps: M51, the second caller gets the id and status of the first job.
create or replace function {schema}.key_holders(p_job_types text[], p_keys text[])
returns table (place bigint, id bigint, status text)
language sql stable security definer
as $$
  select h.place, h.id, h.status
  from {schema}.keys_held(p_job_types, p_keys) h
  where {schema}.caller_check('job'::text, 'INSERT'::text)
$$;
