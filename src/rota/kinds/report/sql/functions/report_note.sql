-- Notes a file before it is written. p_page: NULL: the file of all pages.
-- Locks: none.
create or replace function {schema}.report_note(p_run bigint, p_file text, p_page int default null)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into {schema}.report_file (run, name, page)
  values (p_run, p_file, p_page)
$$;
revoke execute on function {schema}.report_note(bigint, text, int) from public;
