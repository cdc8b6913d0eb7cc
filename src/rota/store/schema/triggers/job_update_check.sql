-- Calls job_check for changes by hand: no statement that runs for every job sets these columns.
create or replace trigger job_update_check
after update of
  queue, job_type, payload, payload_version, priority, expires_at, max_attempts,
  timeout, idempotency_key, group_key, group_capacity, meta, scheduled_for, created_at
on {schema}.job
for each row
execute function {schema}.job_check();
