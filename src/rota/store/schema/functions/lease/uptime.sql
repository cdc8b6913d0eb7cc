-- Returns how long the server has been up. While it was down, a worker could not renew its leases.
-- A private server is the exception: it stops with the last process that uses it, so no worker was
-- left then. The next process to start it, such as a drain each minute, has no worker to wait for.
create or replace function {schema}.uptime()
returns interval
language sql stable parallel safe
as $$
  select case
    when pg_catalog.current_setting('private_server.stops_with_its_users', true) = 'on'
      then '1 day'::interval
    else pg_catalog.statement_timestamp() - pg_catalog.pg_postmaster_start_time()
  end
$$;
