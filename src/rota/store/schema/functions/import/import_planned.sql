-- Returns until when the runs of each type are planned in a table of somebody's own queue.
-- Locks: none; it reads the table whole.
create or replace function {schema}.import_planned(p_table text, p_spec jsonb)
returns table (job_type text, until timestamptz)
language plpgsql stable
as $$
begin
  return query execute format(
    'select s.job_type, max(s.run_at) from (%s) s
      where s.target in (''queued'', ''failed'', ''running'') group by 1',
    {schema}.import_source(p_table::regclass, p_spec)
  );
end $$;
