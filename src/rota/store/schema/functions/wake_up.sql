-- Wakes the workers that wait for jobs of these queues. It wakes none for a paused queue, from
-- which no worker may claim.
create or replace function wake_up(p_queues text[])
returns void
language sql
set search_path from current
as $$
  select pg_notify(current_schema(), q.name)
  from queue q
  where q.name = any (p_queues)
    and q.notify_until > clock()
    and not is_in_force(q.paused_at, q.paused_until)
$$;
