-- Calls job_run for jobs of a schedule, after job_fill, by its name.
create or replace trigger job_run
before insert on job
for each row
when (new.schedule is not null)
execute function job_run();
