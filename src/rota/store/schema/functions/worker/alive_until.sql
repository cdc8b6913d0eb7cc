-- Returns until when a worker counts as alive: until it stopped, otherwise until a minute after its
-- last heartbeat. The planner inlines the SQL body.
create or replace function {schema}.alive_until(
  p_heartbeat_at timestamptz,
  p_stopped_at timestamptz
)
returns timestamptz
language sql stable parallel safe
return coalesce(p_stopped_at, p_heartbeat_at + interval '1 minute');
