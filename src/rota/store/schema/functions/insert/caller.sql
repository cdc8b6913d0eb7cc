-- Returns the role that asks, inside of a function with the rights of the schema's owner. The
-- function has no search_path, and its body is parsed when it is created: the planner inlines it.
create or replace function {schema}.caller()
returns name
language sql stable parallel safe
return coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
