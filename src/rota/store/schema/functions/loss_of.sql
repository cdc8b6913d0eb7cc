-- Returns the fields of job_leave that follow from the loss of a running job, whatever took it from
-- its worker. The job may have begun, unless its start was to be recorded and was not. The attempt
-- is charged when it is known to have begun, and from the second loss on: then it is no accident.
create or replace function loss_of(p_job job, p_message text)
returns jsonb
language sql stable
set search_path from current
as $$
  select jsonb_build_object(
    'id', p_job.id,
    'claims', p_job.claims,
    'loss', began.is_possible,
    'charged', began.is_charged,
    'ran_s', case when began.is_possible then extract(epoch from clock() - p_job.started_at) end,
    'attempt_only', not began.is_possible,
    'message', p_message || case
      when began.is_charged then ''
      when began.is_possible then '; not charged, for it may not have begun'
      else '; not charged, for it had not begun'
    end,
    'verdict', 'transient'
  )
  from (
    select
      p_job.start_recorded is not false as is_possible,
      p_job.start_recorded is true
        or p_job.start_recorded is null and coalesce(p_job.losses, 0) > 0 as is_charged
  ) began
$$;
