-- Returns whether a pause that began at p_paused_at is in force: it has begun and has not ended.
-- The body is SQL, not text, so that the planner inlines it into a query and can use the indexes of
-- the columns.
create or replace function {schema}.is_in_force(p_paused_at timestamptz, p_paused_until timestamptz)
returns boolean
language sql stable parallel safe
return p_paused_at is not null and (p_paused_until is null or p_paused_until > {schema}.clock());
