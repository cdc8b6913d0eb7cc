-- Discards jobs: they are dead, keep their keys, and wait for a person.
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: M87; M32, a worker that loses the job to it writes nothing.
create or replace function {schema}.job_discard(
  p_ids bigint[],
  p_why text default null,
  p_by text default null
)
returns table (id bigint, answer text, status text)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select *
  from {schema}.job_take_over('discard'::text, p_ids, p_why, p_by)
$$;
revoke execute on function {schema}.job_discard(bigint[], text, text) from public;
