-- Returns how long the server has been up: while it was down, no worker could renew its leases. A
-- private server counts as up for a day: it stops with its last process, so no worker is left.
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
