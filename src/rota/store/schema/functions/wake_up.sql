-- Wakes the workers that wait for jobs of these queues. It wakes none for a paused queue, from
-- which no worker may claim.
create or replace function {schema}.wake_up(p_queues text[])
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  select pg_notify('{schema}', q.name)
  from {schema}.queue q
  where q.name = any (p_queues)
    and q.notify_until > {schema}.clock()
    and not {schema}.is_in_force(q.paused_at, q.paused_until)
$$;
