-- Forget figures that are as old as they are kept.
-- Parameters: limit int
-- Rows: count int4
-- Locks: the rows of the figures, with SKIP LOCKED; index stat_hour_pkey.
-- Keeps: a table that grows stops growing.
select rota.figures_forget(:limit::int) as count
