-- Returns the state of a worker in one word: alive; silent (alive but two heartbeats late); gone
-- (not alive, but never stopped); stopped. The planner inlines the SQL body.
create or replace function {schema}.liveness_of(
  p_heartbeat_at timestamptz,
  p_stopped_at timestamptz
)
returns text
language sql stable parallel safe
return case
  when p_stopped_at is not null then 'stopped'
  when not {schema}.is_alive(p_heartbeat_at, p_stopped_at) then 'gone'
  when p_heartbeat_at < {schema}.clock() - interval '30 seconds' then 'silent'
  else 'alive'
end;
