-- List the functions, views and triggers that differ from what `rota migrate` made.
-- Parameters: none
-- Rows: name text
-- Locks: none.
-- Keeps: a change by hand is seen. Each major version of PostgreSQL prints a view in its own words,
--   so a text that was made under another major version is not compared.
select d.name
from :schema.definition d
left join :schema.definition_texts() t on t.name = d.name
where d.server_major = current_setting('server_version_num')::int / 10000
  and md5(t.text) is distinct from d.server_hash
order by d.name
