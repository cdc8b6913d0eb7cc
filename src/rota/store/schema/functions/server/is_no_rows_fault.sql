-- Returns whether an error is the fault of the connection, the server, the rights or the
-- transaction: it would come with any other row, too.
create or replace function {schema}.is_no_rows_fault(p_state text)
returns boolean
language sql immutable parallel safe
return p_state ~ '^(08|57|25006|53|58|28|3D|40)';
