-- Lists the files of a run that may be in the store, in page order. rows: only of a page's file.
-- Locks: none; index report_file_pkey.
create or replace function {schema}.report_files(p_run bigint)
returns table (name text, page int, rows bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select f.name, f.page, f.rows
  from {schema}.report_file f
  where f.run = p_run
  order by f.page, f.name
$$;
revoke execute on function {schema}.report_files(bigint) from public;
