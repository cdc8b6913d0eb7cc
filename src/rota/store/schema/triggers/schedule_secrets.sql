-- Calls secret_check for the jobs of a schedule.
create or replace trigger schedule_secrets
before insert or update of job_type, payload
on {schema}.schedule
for each row
execute function {schema}.secret_check();
