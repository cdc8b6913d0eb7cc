-- Calls job_check for a time that no client can read. Every retry sets run_at, and pays only for
-- the condition.
create or replace trigger job_update_run_at
after update of run_at
on {schema}.job
for each row
when (new.run_at < '1970-01-01 00:00:00+00' or new.run_at >= '9000-01-01 00:00:00+00')
execute function {schema}.job_check();
