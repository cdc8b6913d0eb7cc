-- Returns the rows of a table of somebody's own queue as JSON, such as definitions of schedules.
-- Locks: none; it reads the table whole.
create or replace function {schema}.import_rows(p_table text)
returns setof jsonb
language plpgsql stable
as $$
begin
  return query execute format('select to_jsonb(t) from %s t order by t', p_table::regclass);
end $$;
