-- Returns whether a worker is alive: it has not stopped, and its last heartbeat is younger than a
-- minute. The planner inlines the SQL body.
create or replace function {schema}.is_alive(p_heartbeat_at timestamptz, p_stopped_at timestamptz)
returns boolean
language sql stable parallel safe
return p_stopped_at is null
  and {schema}.alive_until(p_heartbeat_at, p_stopped_at) > {schema}.clock();
