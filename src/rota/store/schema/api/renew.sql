-- Renews a lease, and returns whether the job has a request to cancel. A row that another
-- transaction has locked is not waited for: the job stays held under its current lease.
create or replace function renew(id bigint, claims int)
returns table (locked_until timestamptz, cancel_requested boolean, cancel_reason text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  v_job job := job_by_claim(renew.id, renew.claims);
begin
  perform worker_seen(
    v_job.locked_by,
    v_job.queue,
    array[v_job.job_type],
    worker_release(v_job.locked_by)
  );
  perform job_renew(
    array[renew.id],
    array[renew.claims],
    array[v_job.job_type],
    array[
      coalesce(
        (select t.lease from job_type t where t.name = canonical_type(v_job.job_type)),
        lease_default()
      )
    ]
  );
  if not found then
    perform lease_lost(renew.id, renew.claims);
  end if;
  v_job := job_by_claim(renew.id, renew.claims);
  return query
  select v_job.locked_until, v_job.cancel_requested_at is not null, v_job.cancel_reason;
end $$;
revoke execute on function renew(bigint, int) from public;
