-- Read which transaction is open.
-- Parameters: none
-- Rows: id text. None when it has written nothing.
-- Locks: none.
-- Keeps: M50, a test notices that a handler has ended its transaction.
select pg_catalog.pg_current_xact_id_if_assigned()::text as id
