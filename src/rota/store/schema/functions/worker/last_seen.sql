-- Returns when a worker stopped, otherwise its last heartbeat. The planner inlines the SQL body.
create or replace function {schema}.last_seen(p_heartbeat_at timestamptz, p_stopped_at timestamptz)
returns timestamptz
language sql immutable parallel safe
return coalesce(p_stopped_at, p_heartbeat_at);
