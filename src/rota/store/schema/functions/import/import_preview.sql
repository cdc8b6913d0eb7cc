-- Returns what import_move would do to a table: for each target and each refusal the rows.
-- Locks: none; it reads the table whole.
create or replace function {schema}.import_preview(p_table text, p_spec jsonb)
returns table (target text, refusal text, jobs bigint)
language plpgsql stable
as $$
begin
  return query execute format(
    'select s.target, s.refusal, count(*) from (%s) s group by 1, 2 order by 3 desc, 1, 2',
    {schema}.import_source(p_table::regclass, p_spec)
  );
end $$;
