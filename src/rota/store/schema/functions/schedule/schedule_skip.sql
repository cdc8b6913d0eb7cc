-- Writes a history row for a skipped tick: an earlier run was not over. Returns its id.
create or replace function {schema}.schedule_skip(
  p_schedule {schema}.schedule,
  p_tick timestamptz,
  p_why text
)
returns bigint
language plpgsql
as $$
declare
  v_job bigint := nextval(pg_get_serial_sequence('{schema}.job', 'id'));
  v_type {schema}.job_type;
begin
  perform {schema}.partitions_ensure(0);
  select * into v_type
  from {schema}.job_type t
  where t.name = {schema}.canonical_type(p_schedule.job_type);
  p_schedule.queue := coalesce(p_schedule.queue, v_type.queue, 'default');
  p_schedule.priority := coalesce(p_schedule.priority, v_type.priority, 0);
  insert into {schema}.job_history (
    id,
    {scheduled},
    schedule, scheduled_for,
    status, run_at, attempts, claims,
    created_at, updated_at,
    last_error, error_type, finished_at
  )
  values (
    v_job,
    {p_schedule.scheduled},
    p_schedule.name, p_tick,
    'cancelled', p_tick, 0, 0,
    {schema}.clock(), {schema}.clock(),
    p_why, 'Overlap', {schema}.clock()
  );
  insert into {schema}.schedule_run (schedule, job, scheduled_for)
  values (p_schedule.name, v_job, p_tick);
  return v_job;
end $$;
