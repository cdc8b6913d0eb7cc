-- Returns whether a worker that has stopped was a drain: it lived briefly, and may run again. The
-- planner inlines the SQL body.
create or replace function {schema}.was_drain(p_started_at timestamptz, p_stopped_at timestamptz)
returns boolean
language sql stable parallel safe
return p_stopped_at is not null
  and p_stopped_at < p_started_at + interval '2 minutes';
