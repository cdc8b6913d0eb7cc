-- Retries jobs by their status, which is read under the lock of the row. A job that waits for a
-- later time or a retry is due now. So is a running job; its worker loses it. A dead job is
-- requeued as by job_requeue; new_id is the new job. Not retried: waiting, finished and, without
-- p_running, running jobs.
--
-- All functions for people: SECURITY DEFINER, so that a role with EXECUTE needs no right on a
-- table. No role has it by default. p_ids has at most a thousand ids or so: their rows stay locked
-- until the transaction ends. p_why is one line of at most 500 characters; p_by one of at most 200,
-- by default the role that logged in. Each function returns for every id the answer (done, refused,
-- not found; of a cancel also requested) and the job's status now.
-- Locks: the rows of the jobs, in id order; index job_pkey. Then keys, as job_requeue.
-- Keeps: M87; M32, a worker that loses the job to this call writes nothing.
create or replace function {schema}.job_retry(
  p_ids bigint[],
  p_why text default null,
  p_by text default null,
  p_running boolean default true
)
returns table (id bigint, answer text, status text, new_id bigint)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_live bigint[];
begin
  perform {schema}.partitions_ensure(0);
  -- All ids, whatever their status: it is decided below, and cannot change any more.
  perform from {schema}.job j
  where j.id = any (p_ids)
  order by j.id
  for update;
  v_live := array(
    select j.id
    from {schema}.job j
    where j.id = any (p_ids)
      and j.status <> 'dead'
  );
  return query
  select t.id, t.answer, t.status, null::bigint
  from {schema}.job_take_over('retry'::text, v_live, p_why, p_by, p_running) t
  union all
  select r.id, r.answer, r.status, r.new_id
  from {schema}.job_requeue(
    array(select i.id from unnest(p_ids) i(id) where i.id <> all (v_live)),
    p_why,
    p_by
  ) r
  order by id;
end $$;
revoke execute on function {schema}.job_retry(bigint[], text, text, boolean) from public;
