-- Returns when a worker was last seen: when it stopped, otherwise at its last heartbeat. The body
-- is SQL, not text, so that the planner inlines it.
create or replace function {schema}.last_seen(p_heartbeat_at timestamptz, p_stopped_at timestamptz)
returns timestamptz
language sql immutable parallel safe
return coalesce(p_stopped_at, p_heartbeat_at);
