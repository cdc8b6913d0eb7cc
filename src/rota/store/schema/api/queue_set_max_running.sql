-- Sets how many jobs of a queue may run at once, over all workers; NULL: no cap. It holds from the
-- next claim on; running jobs beyond a lower number continue. p_force: even if nobody knows the
-- queue. Returns the number before; NULL: there was none.
-- Locks: the row of the queue; then as caps_release.
-- Keeps: M87, who and why; M60, what waited for a free slot is found as soon as there is one.
create or replace function {schema}.queue_set_max_running(
  p_queue text,
  p_max_running int,
  p_why text default null,
  p_by text default null,
  p_force boolean default false
)
returns int
language plpgsql security definer
as $$
declare
  v_before int;
begin
  if p_queue is null or length(p_queue) not between 1 and 100 then
    raise invalid_parameter_value using message = 'a queue''s name has 1 to 100 characters';
  elsif p_max_running not between 1 and 100000 then
    raise invalid_parameter_value using message = format(
      'max_running must be from 1 to 100000, or NULL for no limit, not %s; to run none, pause the '
        'queue',
      p_max_running
    );
  end if;
  perform {schema}.queue_refuse_unknown(p_queue, p_force);
  select q.max_running into v_before
  from {schema}.queue q
  where q.name = p_queue
  for no key update;
  insert into {schema}.queue as q (name, max_running)
  values (p_queue, p_max_running)
  on conflict (name) do update
  set max_running = excluded.max_running;
  perform {schema}.caps_release(array['queue ' || p_queue]);
  perform {schema}.log_action(
    'set_max_running'::text, p_why, p_by,
    p_queue => p_queue,
    p_detail => jsonb_build_object('from', v_before, 'to', p_max_running)
  );
  return v_before;
end $$;
revoke execute on function {schema}.queue_set_max_running(text, int, text, text, boolean)
from public;
