-- Forget alerts that have long been over.
-- Parameters: limit int
-- Rows: count int4
-- Locks: the rows of the alerts, with SKIP LOCKED.
-- Keeps: M13, the table of alerts stops growing.
select rota.alerts_forget(:limit::int) as count
