-- Formats an instant for a sentence, in UTC and to the second. The body is SQL, not text, so that
-- the planner inlines it.
create or replace function {schema}.utc_text(p_at timestamptz)
returns text
language sql stable parallel safe
return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"+00:00"');
