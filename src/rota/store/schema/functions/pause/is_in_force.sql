-- Returns whether a pause that began at p_paused_at has begun and has not ended. The planner
-- inlines the SQL body, and can use the indexes of the columns.
create or replace function {schema}.is_in_force(p_paused_at timestamptz, p_paused_until timestamptz)
returns boolean
language sql stable parallel safe
return p_paused_at is not null and (p_paused_until is null or p_paused_until > {schema}.clock());
