-- Pauses a schedule: no tick is enqueued from now on; a run that is already enqueued still runs. A
-- second pause replaces p_why and p_by; paused_at stays. Returns `paused` or `not found`.
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
create or replace function {schema}.schedule_pause(
  p_name text,
  p_why text default null,
  p_by text default null
)
returns text
language plpgsql security definer
as $$
begin
  update {schema}.schedule s
  set
    paused_at = coalesce(s.paused_at, {schema}.clock()),
    paused_by = coalesce({schema}.one_line(p_by, 200), session_user),
    paused_why = {schema}.one_line(p_why, 500),
    refused = false
  where s.name = p_name;
  if not found then
    return 'not found';
  end if;
  perform {schema}.log_action('pause'::text, p_why, p_by, p_name);
  return 'paused';
end $$;
revoke execute on function {schema}.schedule_pause(text, text, text) from public;
