-- Pauses a schedule whose job job_refusal refuses, if it is unchanged. Returns whether it did.
-- Locks: the row of the schedule.
-- Keeps: one bad row does not stop the others from being planned, and says what is wrong with it.
create or replace function {schema}.schedule_refuse(
  p_name text,
  p_next_run_at timestamptz,
  p_since timestamptz,
  p_why text
)
returns boolean
language plpgsql
as $$
begin
  update {schema}.schedule s
  set
    paused_at = {schema}.clock(),
    paused_by = 'rota',
    paused_why = left(p_why, 500),
    refused = true
  where s.name = p_name
    and s.next_run_at is not distinct from p_next_run_at
    and s.since = p_since
    and s.paused_at is null;
  return found;
end $$;
