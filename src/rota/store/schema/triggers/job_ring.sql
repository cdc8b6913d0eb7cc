-- Calls job_ring once for each INSERT.
create or replace trigger job_ring
after insert on job
referencing new table as fresh
for each statement
execute function job_ring();
