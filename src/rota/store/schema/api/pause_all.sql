-- Pauses everything: no worker claims from any queue, and no schedule ticks.
create or replace function {schema}.pause_all(
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
as $$
begin
  perform {schema}.pause_refuse_past(p_until);
  perform {schema}.installation_record(false);
  return query
  update {schema}.installation i
  set
    paused_at = coalesce({schema}.paused_since(i.paused_at, i.paused_until), {schema}.clock()),
    paused_until = p_until,
    paused_by = coalesce({schema}.one_line(p_by, 200), session_user),
    paused_why = {schema}.one_line(p_why, 500)
  returning null::text, i.paused_at, i.paused_until, i.paused_by, i.paused_why;
  perform {schema}.log_action(
    'pause'::text, p_why, p_by,
    p_detail => case when p_until is not null then jsonb_build_object('until', p_until) end
  );
end $$;
revoke execute on function {schema}.pause_all(timestamptz, text, text) from public;
