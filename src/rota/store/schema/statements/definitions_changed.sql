-- List the functions, views and triggers that differ from what `rota migrate` made.
-- Parameters: none
-- Rows: name text
-- Locks: none.
-- Keeps: a change by hand is seen. Texts from another major version of PostgreSQL are not compared,
--   because each prints views in its own words.
select d.name
from :schema.definition d
left join :schema.definition_texts() t on t.name = d.name
where d.server_major = current_setting('server_version_num')::int / 10000
  and md5(t.text) is distinct from d.server_hash
order by d.name
