-- Wakes all workers that wait for a wake-up.
create or replace function wake_up_all()
returns void
language sql
set search_path from current
as $$
  select wake_up(array(select q.name from queue q where q.notify_until > clock()))
$$;
