-- Pauses a queue: once this is committed, no job of it is claimed until p_until has passed (NULL:
-- until a person resumes it). Running jobs continue. p_force: even if nobody knows the queue.
create or replace function {schema}.queue_pause(
  p_queue text,
  p_until timestamptz default null,
  p_why text default null,
  p_by text default null,
  p_force boolean default false
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
  if p_queue is null or length(p_queue) not between 1 and 100 then
    raise invalid_parameter_value using message = 'a queue''s name has 1 to 100 characters';
  end if;
  perform {schema}.pause_refuse_past(p_until);
  perform {schema}.queue_refuse_unknown(p_queue, p_force);
  return query
  insert into {schema}.queue as q (name, paused_at, paused_until, paused_by, paused_why)
  values (
    p_queue, {schema}.clock(), p_until,
    coalesce({schema}.one_line(p_by, 200), session_user),
    {schema}.one_line(p_why, 500)
  )
  on conflict (name) do update
  set
    paused_at = coalesce({schema}.paused_since(q.paused_at, q.paused_until), excluded.paused_at),
    paused_until = excluded.paused_until,
    paused_by = excluded.paused_by,
    paused_why = excluded.paused_why
  returning q.name, q.paused_at, q.paused_until, q.paused_by, q.paused_why;
  perform {schema}.log_action(
    'pause'::text, p_why, p_by,
    p_queue => p_queue,
    p_detail => case when p_until is not null then jsonb_build_object('until', p_until) end
  );
end $$;
revoke execute on function {schema}.queue_pause(text, timestamptz, text, text, boolean)
from public;
