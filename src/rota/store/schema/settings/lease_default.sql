-- Returns the lease of a job whose type has none, or is not declared. It is the default of
-- `App(lease=…)` too.
create function {schema}.lease_default()
returns interval
language sql immutable parallel safe
return interval '2 minutes';
