-- Returns the server's own text of each function, view and trigger of this schema, with a fixed
-- search_path, on which the text depends.
create or replace function {schema}.definition_texts()
returns table (name text, text text)
language sql stable
as $$
  select made.name, string_agg(made.text, E'\n' order by made.text)
  from (
    select p.proname::text as name, pg_get_functiondef(p.oid) as text
    from pg_proc p
    where p.pronamespace = '{schema}'::regnamespace
      and p.prokind = 'f'
    union all
    select c.relname::text, pg_get_viewdef(c.oid)
    from pg_class c
    where c.relnamespace = '{schema}'::regnamespace
      and c.relkind = 'v'
    union all
    select t.tgname || ' (trigger)', pg_get_triggerdef(t.oid)
    from pg_trigger t
    join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = '{schema}'::regnamespace
      and not t.tgisinternal
  ) made
  group by made.name
$$;
