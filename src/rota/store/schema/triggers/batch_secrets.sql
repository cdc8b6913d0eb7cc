-- Calls secret_check for the jobs that follow a batch.
create or replace trigger batch_secrets
before insert or update of then_jobs
on {schema}.batch
for each row
when (new.then_jobs is not null)
execute function {schema}.secret_check();
