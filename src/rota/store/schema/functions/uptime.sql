-- How long the server has been up. A worker could not renew its leases while it was down, unless there was none: a private server stops with the
-- last process that uses it, so that the next to start it, a drain each minute, has nobody to wait for.
create or replace function uptime() returns interval language sql stable parallel safe as
  'select case when pg_catalog.current_setting(''private_server.stops_with_its_users'', true) = ''on'' then ''1 day''::interval
               else pg_catalog.statement_timestamp() - pg_catalog.pg_postmaster_start_time() end';
