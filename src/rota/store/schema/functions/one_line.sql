-- A text from a person: who or why, on one line; NULL when nothing is left.
create or replace function one_line(p_text text, p_most int) returns text
language sql immutable parallel safe set search_path from current as $$
  select nullif(told(p_text, p_most), '')
$$;
