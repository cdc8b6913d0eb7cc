-- Add what ended in minutes that are closed to the figures, an hour of it at most.
-- Parameters: none
-- Rows: more bool
-- Locks: the row of stat_fold, with SKIP LOCKED; no index: the tail of one day's history, or once an hour all of that day.
-- Keeps: M85, each row counted once, and no finish pays for it.
select rota.figures_fold() as more
