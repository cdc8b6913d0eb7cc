-- Lets a running job wait until other jobs have ended, uncharged. on_failure 'wait': it also waits
-- while one of them is dead, until a person has retried or archived that job. `results` then says
-- how they ended. A worker in Python, or a drain, must let the job go on.
create or replace function {schema}.wait_for(
  id bigint,
  claims int,
  jobs bigint[],
  on_failure text default 'continue'
)
returns table (status text, run_at timestamptz)
language plpgsql security definer
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(wait_for.id, wait_for.claims);
  v_all bigint[] := {schema}.wait_ids(v_job.meta, 'before'::text)
    || {schema}.wait_ids(v_job.meta, 'jobs'::text)
    || wait_for.jobs;
  v_wrong text := case
    when coalesce(cardinality(wait_for.jobs), 0) = 0
      then 'jobs must name one at least'
    when array_position(wait_for.jobs, null) is not null or 1 > any (wait_for.jobs)
      then 'jobs must be ids of jobs'
    when wait_for.id = any (wait_for.jobs)
      then 'a job cannot wait for itself'
    when (select count(distinct a.id) from unnest(v_all) a(id)) > 1000
      then 'a job waits for at most 1,000 jobs in all'
    when wait_for.on_failure is null or wait_for.on_failure not in ('continue', 'wait')
      then 'on_failure must be continue or wait'
  end;
begin
  if v_wrong is not null then
    raise exception 'rota.wait_for: %', v_wrong using errcode = '22023';
  end if;
  return query
  select b.status, b.run_at
  from {schema}.job_hand_back(
    wait_for.id,
    wait_for.claims,
    null::float8,
    jsonb_build_object('jobs', wait_for.jobs, 'on_failure', wait_for.on_failure)
  ) b;
end $$;
revoke execute on function {schema}.wait_for(bigint, int, bigint[], text) from public;
