-- List the migrations that the schema has.
-- Parameters: none
-- Rows: number int4; name text; oldest_release text; package text (empty: Rota's own)
-- Locks: none.
-- Keeps: a worker refuses a schema that it cannot serve.
select number, name, oldest_release, package
from :schema.migration
order by package, number
