-- Lets a running job wait until other jobs have ended, uncharged. on_failure 'wait': it also waits
-- while a job of these is dead, until a person has retried or archived that job. `worker_results`
-- then says how they ended. A worker in Python, or a drain, must let the job go on.
create or replace function {schema}.worker_wait_for(
  id bigint,
  claims int,
  jobs bigint[],
  on_failure text default 'continue'
)
returns table (status text, run_at timestamptz)
language plpgsql security definer
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(id, claims);
  v_all bigint[] := {schema}.wait_ids(v_job.meta, 'before'::text)
    || {schema}.wait_ids(v_job.meta, 'jobs'::text)
    || jobs;
  v_wrong text := case
    when coalesce(cardinality(jobs), 0) = 0
      then 'jobs must name one at least'
    when array_position(jobs, null) is not null or 1 > any (jobs)
      then 'jobs must be ids of jobs'
    when id = any (jobs)
      then 'a job cannot wait for itself'
    when (select count(distinct a.id) from unnest(v_all) a(id)) > 1000
      then 'a job waits for at most 1,000 jobs in all'
    when on_failure is null or on_failure not in ('continue', 'wait')
      then 'on_failure must be continue or wait'
  end;
begin
  if v_wrong is not null then
    raise exception 'rota.worker_wait_for: %', v_wrong using errcode = '22023';
  end if;
  return query
  select b.status, b.run_at
  from {schema}.job_hand_back(
    id,
    claims,
    null::float8,
    jsonb_build_object('jobs', jobs, 'on_failure', on_failure)
  ) b;
end $$;
revoke execute on function {schema}.worker_wait_for(bigint, int, bigint[], text) from public;
