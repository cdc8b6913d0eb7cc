-- Calls job_check once for each INSERT.
create or replace trigger job_insert_check
after insert on {schema}.job
referencing new table as fresh
for each statement
execute function {schema}.job_check();
