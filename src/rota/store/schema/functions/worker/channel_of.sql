-- Returns the channel on which a worker listens. No schema's name has a dot, so schemas share no
-- channel. The planner inlines the SQL body.
create or replace function {schema}.channel_of(p_worker text)
returns text
language sql immutable parallel safe
return '{schema}.' || left(md5(p_worker), 8);
