-- Discards jobs: they are dead, keep their keys of key_scope 'ttl', and wait for a person. Without
-- p_running a running job is refused.
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: M87; M32, a worker that loses the job to this call writes nothing.
create or replace function {schema}.job_discard(
  p_ids bigint[],
  p_why text default null,
  p_by text default null,
  p_running boolean default true
)
returns table (id bigint, answer text, status text)
language sql security definer
as $$
  select *
  from {schema}.job_take_over('discard'::text, p_ids, p_why, p_by, p_running)
$$;
revoke execute on function {schema}.job_discard(bigint[], text, text, boolean) from public;
