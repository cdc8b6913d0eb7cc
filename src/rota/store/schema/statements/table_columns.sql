-- Find the columns of a table that is none of Rota's, in their order, with the table's whole name.
-- Parameters: table text (as a query names it)
-- Rows: whole_name text; column name
-- Locks: none; index pg_attribute_relid_attnum_index.
-- Keeps: nothing.
select format('%I.%I', n.nspname, c.relname) as whole_name, a.attname as column
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid
where c.oid = to_regclass(:table::text)
  and a.attnum > 0
  and not a.attisdropped
order by a.attnum
