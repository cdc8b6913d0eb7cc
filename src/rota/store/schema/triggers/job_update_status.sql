-- Calls job_check for a status that is none. Every claim sets one, and pays only for the condition.
create or replace trigger job_update_status
after update of status
on {schema}.job
for each row
when (new.status not in ('queued', 'waiting', 'running', 'failed', 'dead'))
execute function {schema}.job_check();
