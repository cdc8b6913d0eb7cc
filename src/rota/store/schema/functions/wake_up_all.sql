-- Wakes all workers that wait for a wake-up.
create or replace function {schema}.wake_up_all()
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  select {schema}.wake_up(array(
    select q.name
    from {schema}.queue q
    where q.notify_until > {schema}.clock()
  ))
$$;
