-- Calls job_fill for rows that need it: a row with queue and priority, as our own client writes it,
-- counts as complete. The setting: jobs_insert has taken the keys of the rows. Not clock(), which
-- every INSERT would plan anew; job_fill asks clock().
create or replace trigger job_insert_fill
before insert on {schema}.job
for each row
when (
  new.queue is null
  or new.priority is null
  or new.idempotency_key is not null
    and current_setting('{schema}.keys_taken', true) is distinct from 'on'
  or new.schedule is not null
  or new.run_at < statement_timestamp()
  or length(new.queue) > 100
  or length(new.group_key) > 255
)
execute function {schema}.job_fill();
