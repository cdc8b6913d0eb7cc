-- Calls job_check once for each INSERT. Nothing else asks for the rows: a second such trigger would
-- cost a single INSERT 3 %.
create or replace trigger job_insert_check
after insert on {schema}.job
referencing new table as fresh
for each statement
execute function {schema}.job_check();
