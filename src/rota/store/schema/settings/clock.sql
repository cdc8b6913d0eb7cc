-- The one place that says what time it is; tests move it. The time of the statement, not of the transaction: a job enqueued late in a long
-- transaction is due from then, not from the transaction's beginning.
create function clock() returns timestamptz language sql stable parallel safe as 'select pg_catalog.statement_timestamp()';
