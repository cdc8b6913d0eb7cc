-- List the migrations that the schema has.
-- Parameters: none
-- Rows: number int4; name text; oldest_release text
-- Locks: none.
-- Keeps: a worker refuses a schema that it cannot serve.
select number, name, oldest_release
from :schema.migration
order by number
