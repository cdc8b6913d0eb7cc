-- Notes which file is a page of a run, and how many rows it has. Returns whether the run is still
-- wanted. To be called in a transaction that finishes the job of the page.
-- Locks: the rows of the files of the page.
-- Keeps: M32, of two who have made the page, the one that holds its job is chosen.
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
