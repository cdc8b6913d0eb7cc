-- Put jobs away that have been dead for as long as dead ones are kept.
-- Parameters: limit int; only int8[] (of these jobs only; NULL: of all)
-- Rows: count int4
-- Locks: the rows of the jobs, with SKIP LOCKED; index job_dead. Then the rows of their keys.
-- Keeps: M44, a dead job never just disappears; M13.
select rota.dead_put_away(:limit::int, :only::int8[]) as count
