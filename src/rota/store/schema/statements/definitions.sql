-- List the functions, views and triggers of the schema, and which release wrote each.
-- Parameters: none
-- Rows: name text; hash text (SHA-256 of the file); release text (that wrote it)
-- Locks: none.
-- Keeps: an older release leaves the texts of a newer one alone.
select d.name, d.hash, d.release
from :schema.definition d
order by d.name
