-- Returns the time of this moment, where clock() is when the statement began: for a decision that
-- has waited for a lock.
create function {schema}.moment()
returns timestamptz
language sql
return {schema}.clock() + (clock_timestamp() - statement_timestamp());
