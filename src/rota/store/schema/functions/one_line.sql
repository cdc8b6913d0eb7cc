-- Returns a person's text (who or why) as it is stored: redacted, on one line; NULL: empty.
create or replace function one_line(p_text text, p_most int)
returns text
language sql immutable parallel safe
set search_path from current
as $$
  select nullif(redact(p_text, p_most), '')
$$;
