-- Pauses everything: no worker claims from any queue, and no schedule ticks.
create or replace function pause_all(
  p_until timestamptz default null,
  p_why text default null,
  p_by text default null
)
returns table (
  queue text,
  paused_at timestamptz,
  paused_until timestamptz,
  paused_by text,
  paused_why text
)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  perform pause_refuse_past(p_until);
  perform installation_ensure();
  return query
  update installation i
  set
    paused_at = coalesce(paused_since(i.paused_at, i.paused_until), clock()),
    paused_until = p_until,
    paused_by = coalesce(one_line(p_by, 200), session_user),
    paused_why = one_line(p_why, 500)
  returning null::text, i.paused_at, i.paused_until, i.paused_by, i.paused_why;
  perform log_action(
    'pause', p_why, p_by,
    p_detail => case when p_until is not null then jsonb_build_object('until', p_until) end
  );
end $$;
revoke execute on function pause_all(timestamptz, text, text) from public;
