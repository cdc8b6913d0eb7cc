-- Forget workers that have been gone for a day.
-- Parameters: limit int
-- Rows: count int4
-- Locks: the rows of the workers, with SKIP LOCKED.
-- Keeps: the list of workers is no longer than those of a day; a release that was alive within the hour is still known.
select rota.workers_forget(:limit::int) as count
