-- Calls job_fill for rows that need it: a row with queue and priority, as our own client writes
-- it, counts as complete.
create or replace trigger job_insert_fill
before insert on {schema}.job
for each row
when (
  new.queue is null
  or new.priority is null
  or new.idempotency_key is not null
  or new.run_at < {schema}.clock()
)
execute function {schema}.job_fill();
