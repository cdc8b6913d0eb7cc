-- Enqueues a run now, even of a schedule that is paused or disabled, and even while another run is
-- not over. Returns the job's id; NULL: there is no such schedule.
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
create or replace function {schema}.schedule_trigger(
  p_name text,
  p_why text default null,
  p_by text default null
)
returns bigint
language plpgsql security definer
as $$
declare
  v_schedule {schema}.schedule;
  v_job bigint;
begin
  select * into v_schedule
  from {schema}.schedule s
  where s.name = p_name
  for no key update;
  if not found then
    return null;
  end if;
  v_job := {schema}.schedule_enqueue(v_schedule, null::timestamptz, {schema}.clock());
  update {schema}.schedule s
  set
    last_run_at = {schema}.clock(),
    last_job = v_job
  where s.name = p_name;
  perform {schema}.log_action(
    'trigger'::text, p_why, p_by, p_name, p_detail => jsonb_build_object('job', v_job)
  );
  return v_job;
end $$;
revoke execute on function {schema}.schedule_trigger(text, text, text) from public;
