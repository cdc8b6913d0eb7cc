-- Returns the pattern of LIKE for a text that an error has somewhere; its ellipses stand for
-- whatever is there.
create or replace function {schema}.error_like(p_text text)
returns text
language sql immutable parallel safe
as $$
  select '%'
    || replace(replace(replace(replace(p_text, '\', '\\'), '%', '\%'), '_', '\_'), '…', '%')
    || '%'
$$;
