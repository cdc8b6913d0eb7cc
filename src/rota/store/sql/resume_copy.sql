-- Say that a restored copy is to work.
-- Parameters: why text; by text
-- Rows: resumed bool (false: it was none)
-- Locks: the row of the site.
-- Keeps: M87; a production dump in staging does nothing until somebody says so.
select rota.resume_copy(:why::text, :by::text) as resumed
