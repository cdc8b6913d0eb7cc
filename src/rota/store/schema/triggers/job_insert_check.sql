-- Calls job_check once for each INSERT.
create or replace trigger job_insert_check
after insert on job
referencing new table as fresh
for each statement
execute function job_check();
