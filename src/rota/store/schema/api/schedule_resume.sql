-- Ends the pause of a schedule. Ticks during the pause are not caught up, unless Rota paused it.
-- Returns `resumed`, `not paused` or `not found`.
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
create or replace function {schema}.schedule_resume(
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
    paused_at = null,
    paused_by = null,
    paused_why = null
  where s.name = p_name
    and s.paused_at is not null;
  if not found then
    return case
      when exists (select from {schema}.schedule s where s.name = p_name) then 'not paused'
      else 'not found'
    end;
  end if;
  perform {schema}.log_action('resume'::text, p_why, p_by, p_name);
  return 'resumed';
end $$;
revoke execute on function {schema}.schedule_resume(text, text, text) from public;
