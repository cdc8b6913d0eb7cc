-- Returns the role that asks, inside of a function with the rights of the schema's owner. Every
-- INSERT of a job asks it: the planner inlines the function, because it has no search_path of its
-- own; its body is parsed when it is created.
create or replace function {schema}.caller()
returns name
language sql stable parallel safe
return coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
