-- Makes jobs due now: those that wait for a later time or a retry, and running ones, whose workers
-- lose them.
--
-- All functions for people: they are SECURITY DEFINER, so that a role that is granted one may act
-- and needs no right on a table. No role is by default. p_ids has at most a thousand ids or so,
-- because their rows stay locked until the transaction ends. p_why is one line of at most 500
-- characters. p_by is one line of at most 200; it defaults to the role that logged in. Each
-- function returns for every id the answer (done, refused, not found; of a cancel also requested)
-- and the job's status now.
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of the keys of those that
--   had a request to cancel.
-- Keeps: M87; M32, a worker that loses the job to it writes nothing.
create or replace function {schema}.job_retry_now(
  p_ids bigint[],
  p_why text default null,
  p_by text default null
)
returns table (id bigint, answer text, status text)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select *
  from {schema}.job_take_over('retry_now'::text, p_ids, p_why, p_by)
$$;
revoke execute on function {schema}.job_retry_now(bigint[], text, text) from public;
