-- Returns the pattern of LIKE for a text that an error contains; an ellipsis stands for any text.
create or replace function {schema}.error_like(p_text text)
returns text
language sql immutable parallel safe
as $$
  select '%'
    || replace(replace(replace(replace(p_text, '\', '\\'), '%', '\%'), '_', '\_'), '…', '%')
    || '%'
$$;
