-- End a pause of everything.
-- Parameters: why text; by text
-- Rows: resumed bool (false: there was none)
-- Locks: the row of the site.
-- Keeps: M87.
select rota.resume_all(:why::text, :by::text) as resumed
