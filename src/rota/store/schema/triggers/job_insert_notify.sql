-- Calls job_notify once for each INSERT.
create or replace trigger job_insert_notify
after insert on job
referencing new table as fresh
for each statement
execute function job_notify();
