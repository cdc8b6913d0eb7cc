-- Calls job_check for a status that is none, for a time that no client can read, and for a job that
-- runs without a claim. Every claim sets a status, every retry both, and they pay only for the
-- condition.
create or replace trigger job_update_bounds
after update of status, run_at
on {schema}.job
for each row
when (
  new.status not in ('queued', 'waiting', 'running', 'failed', 'dead')
  or new.run_at < '1970-01-01 00:00:00+00'
  or new.run_at >= '9000-01-01 00:00:00+00'
  or new.status = 'running' and new.claims = old.claims
)
execute function {schema}.job_check();
