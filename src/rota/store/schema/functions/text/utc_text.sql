-- Formats an instant in UTC, to the second. The planner inlines the SQL body.
create or replace function {schema}.utc_text(p_at timestamptz)
returns text
language sql stable parallel safe
return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"');
