-- Notes the file of a page and its number of rows. Returns whether the run is still wanted. Call it
-- in the transaction that finishes the page's job.
-- Locks: the rows of the files of the page.
-- Keeps: M32, of two jobs that made the page, the job that holds its claim is chosen.
create or replace function {schema}.report_page_done(p_run bigint, p_file text, p_rows bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update {schema}.report_file f
  set rows = case when f.name = p_file then p_rows end
  from {schema}.report_file mine
  join {schema}.report_run r on r.id = mine.run
  where mine.run = p_run
    and mine.name = p_file
    and f.run = p_run
    and f.page = mine.page
    and r.cancelled_at is null;
  return found;
end $$;
revoke execute on function {schema}.report_page_done(bigint, text, bigint) from public;
