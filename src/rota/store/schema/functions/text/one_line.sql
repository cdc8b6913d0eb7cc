-- Returns a person's text (who or why) as it is stored: redacted, on one line; NULL: empty.
create or replace function {schema}.one_line(p_text text, p_most int)
returns text
language sql immutable parallel safe
as $$
  select nullif({schema}.redact(p_text, p_most), '')
$$;
