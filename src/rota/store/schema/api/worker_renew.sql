-- Renews a lease, and returns whether the job has a request to cancel. A locked row is not waited
-- for: the job stays held under its current lease.
create or replace function {schema}.worker_renew(id bigint, claims int)
returns table (locked_until timestamptz, cancel_requested boolean, cancel_reason text)
language plpgsql security definer
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(worker_renew.id, worker_renew.claims);
begin
  perform {schema}.sql_worker_seen(
    v_job.locked_by,
    v_job.queue,
    array[v_job.job_type],
    {schema}.release_of(v_job.locked_by)
  );
  perform {schema}.job_renew(
    array[worker_renew.id],
    array[worker_renew.claims],
    array[v_job.job_type],
    array[
      coalesce(
        (
          select t.lease
          from {schema}.job_type t
          where t.name = {schema}.canonical_type(v_job.job_type)
        ),
        {schema}.lease_default()
      )
    ]
  );
  v_job := {schema}.job_by_claim(worker_renew.id, worker_renew.claims);
  return query
  select v_job.locked_until, v_job.cancel_requested_at is not null, v_job.cancel_reason;
end $$;
revoke execute on function {schema}.worker_renew(bigint, int) from public;
