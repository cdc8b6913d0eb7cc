-- Calls job_check once for each INSERT. A second transition table costs a single INSERT 3 %.
create or replace trigger job_insert_check
after insert on {schema}.job
referencing new table as fresh
for each statement
execute function {schema}.job_check();
