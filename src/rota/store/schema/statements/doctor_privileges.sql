-- Read what this role may do, and which roles the connected workers have.
-- Parameters: claims text (the application_name of the connections that claim)
-- Rows: facts text (JSON: role, schema, owner, is_owner, inserts, reads, others: roles of connected
--   workers that do not own the schema)
-- Locks: none.
-- Keeps: M3; a worker attaches partitions, which only the owner may.
select json_build_object(
  'role', current_user,
  'schema', c.relnamespace::regnamespace::text,
  'owner', pg_get_userbyid(c.relowner),
  'is_owner', pg_has_role(c.relowner, 'USAGE'),
  'inserts', has_schema_privilege(c.relnamespace, 'USAGE')
    and has_column_privilege(:'schema' || '.job', 'job_type', 'INSERT'),
  'reads', has_table_privilege(c.oid, 'SELECT'),
  'others', coalesce(
    (
      select json_agg(distinct a.usename)
      from pg_stat_activity a
      where a.application_name = :claims::text
        and a.datname = current_database()
        and not pg_has_role(a.usename, c.relowner, 'USAGE')
    ),
    '[]'
  )
)::text as facts
from pg_class c
where c.oid = (:'schema' || '.job_history')::regclass::oid
