-- Returns the fields of job_leave for the loss of a running job. The job may have begun, unless its
-- start had to be recorded and was not. The attempt is charged if it is known to have begun, and
-- alone: after each loss a job begins beside fewer others (see job_start), so the job that kills
-- its workers is charged, and its neighbours are not.
create or replace function {schema}.loss_of(
  p_id bigint,
  p_claims int,
  p_start_recorded boolean,
  p_losses smallint,
  p_started_at timestamptz,
  p_message text
)
returns jsonb
language sql stable
as $$
  select jsonb_build_object(
    'id', p_id,
    'claims', p_claims,
    'loss', began.is_possible,
    'charged', began.is_charged,
    'ran_s', case
      when began.is_possible then extract(epoch from {schema}.clock() - p_started_at)
    end,
    'attempt_only', not began.is_possible,
    'message', p_message || case
      when began.is_charged then ''
      when p_losses > 0 and began.is_possible
        then '; not counted, because another job may be at fault'
      when began.is_possible then '; not counted, because it may not have begun'
      else '; not counted, because it had not begun'
    end,
    'verdict', 'transient'
  )
  from (
    select
      p_start_recorded is not false as is_possible,
      p_start_recorded is true as is_charged
  ) began
$$;
