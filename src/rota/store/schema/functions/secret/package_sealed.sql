-- Returns what packages keep sealed: the column `sealed` (jsonb) and the name of each such table.
create or replace function {schema}.package_sealed()
returns table (place text, document text)
language plpgsql stable
as $$
begin
  for place in
    select c.relname
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = '{schema}'::regnamespace
      and c.relkind = 'r'
      and a.attname = 'sealed'
      and a.atttypid = 'jsonb'::regtype
    order by c.relname
  loop
    return query execute format('select %L, t.sealed::text from {schema}.%I t', place, place);
  end loop;
end $$;
