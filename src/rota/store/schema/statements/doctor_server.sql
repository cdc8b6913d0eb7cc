-- Read facts about the server and this session.
-- Parameters: none
-- Rows: facts text (JSON: version, encoding, is_standby, is_read_only, backend)
-- Locks: none.
-- Keeps: M3, a problem is reported before it does harm.
select json_build_object(
  'version', current_setting('server_version_num')::int,
  'encoding', current_setting('server_encoding'),
  'is_standby', pg_is_in_recovery(),
  'is_read_only', pg_is_in_recovery()
    or current_setting('default_transaction_read_only')::bool,
  'backend', pg_backend_pid()
)::text as facts
