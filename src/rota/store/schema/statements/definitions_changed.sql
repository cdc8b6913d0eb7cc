-- List the functions, views and triggers that differ from what `rota migrate` made.
-- Parameters: none
-- Rows: name text
-- Locks: none.
-- Keeps: a change by hand is seen. Texts of another major PostgreSQL are not compared.
select d.name
from :schema.definition d
left join :schema.definition_texts() t on t.name = d.name
where d.server_major = current_setting('server_version_num')::int / 10000
  and md5(t.text) is distinct from d.server_hash
order by d.name
