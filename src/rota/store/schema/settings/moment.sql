-- Returns the time now, not of the statement's beginning, for decisions after a wait for a lock.
create function {schema}.moment()
returns timestamptz
language sql
return {schema}.clock() + (clock_timestamp() - statement_timestamp());
