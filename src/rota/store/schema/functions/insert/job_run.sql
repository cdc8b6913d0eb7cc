-- Records the job as a run of its schedule. Its trigger fires after that of job_fill, because a job
-- that was refused for its key is no run. SECURITY DEFINER, as job_fill.
create or replace function {schema}.job_run()
returns trigger
language plpgsql security definer
as $$
begin
  insert into {schema}.schedule_run (schedule, job, scheduled_for)
  values (new.schedule, new.id, new.scheduled_for)
  on conflict do nothing;
  return new;
end $$;
