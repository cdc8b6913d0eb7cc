-- Returns the lease of a job whose type has none or is undeclared; the default of `App(lease=…)`.
create function {schema}.lease_default()
returns interval
language sql immutable parallel safe
return interval '2 minutes';
