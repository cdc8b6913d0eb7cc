-- Returns whether the start of a job must be recorded before it begins: it was lost before, or may
-- begin only once. p_max_attempts and p_on_lost are the job's or its type's; NULL: not known here.
-- Python's `RetryRules.must_record_start` says the same. The planner inlines the SQL body.
create or replace function {schema}.must_record_start(
  p_losses smallint,
  p_max_attempts int,
  p_on_lost text
)
returns boolean
language sql immutable parallel safe
return coalesce(p_losses > 0 or p_max_attempts = 1 or p_on_lost = 'dead', false);
