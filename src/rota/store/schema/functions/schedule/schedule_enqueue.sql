-- Inserts a job of a schedule. Returns its id. p_tick NULL: a person triggered it.
-- Keeps: M82, a tick is not lost silently: if no row is inserted, this raises; the tick stays due.
create or replace function {schema}.schedule_enqueue(
  p_schedule {schema}.schedule,
  p_tick timestamptz,
  p_run_at timestamptz
)
returns bigint
language plpgsql
as $$
declare
  v_job bigint;
  v_run_at timestamptz := greatest(p_run_at, {schema}.clock());
  v_type {schema}.job_type;
begin
  select * into v_type
  from {schema}.job_type t
  where t.name = {schema}.canonical_type(p_schedule.job_type);
  insert into {schema}.job (
    {scheduled},
    run_at, expires_at,
    schedule, scheduled_for,
    group_capacity
  )
  values (
    {p_schedule.scheduled},
    v_run_at, v_run_at + coalesce(p_schedule.expires, v_type.expires),
    p_schedule.name, p_tick,
    case when p_schedule.group_key is not null then v_type.group_capacity end
  )
  returning id into v_job;
  if v_job is null then
    raise check_violation using message = 'a trigger on {schema}.job left it out';
  end if;
  return v_job;
end $$;
