-- Calls job_run for jobs of a schedule. Its name makes it fire after job_insert_fill.
create or replace trigger job_insert_run
before insert on {schema}.job
for each row
when (new.schedule is not null)
execute function {schema}.job_run();
