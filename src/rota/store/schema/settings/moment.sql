-- Returns the time of this moment, for a decision that has waited for a lock; clock() is the
-- statement's beginning.
create function {schema}.moment()
returns timestamptz
language sql
return {schema}.clock() + (clock_timestamp() - statement_timestamp());
