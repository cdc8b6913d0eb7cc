-- Returns the time of the statement, not of the transaction: a job that is enqueued late in a long
-- transaction is due from then. Everything in the schema reads the time here; tests move it.
create function {schema}.clock()
returns timestamptz
language sql stable parallel safe
as 'select pg_catalog.statement_timestamp()';
