-- Read facts about the server and this session.
-- Parameters: none
-- Rows: facts text (JSON: version, encoding, is_standby, is_read_only, backend, timeouts_s, of the
--   role, by name; NULL: this server does not know it)
-- Locks: none.
-- Keeps: M3, a problem is reported before it does harm.
select json_build_object(
  'version', current_setting('server_version_num')::int,
  'encoding', current_setting('server_encoding'),
  'is_standby', pg_is_in_recovery(),
  'is_read_only', pg_is_in_recovery()
    or current_setting('default_transaction_read_only')::bool,
  'backend', pg_backend_pid(),
  'timeouts_s', (
    select json_object_agg(t.name, extract(epoch from current_setting(t.name, true)::interval))
    from unnest(array['transaction_timeout', 'idle_in_transaction_session_timeout']) t(name)
  )
)::text as facts
