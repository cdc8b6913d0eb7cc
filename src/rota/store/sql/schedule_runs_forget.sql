-- Forget which jobs were runs of a schedule, when history no longer knows them either.
-- Parameters: limit int
-- Rows: count int4
-- Locks: the rows of the runs, with SKIP LOCKED; index schedule_run_enqueued.
-- Keeps: a table that grows stops growing.
select rota.schedule_runs_forget(:limit::int) as count
