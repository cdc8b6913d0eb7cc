-- Records the identity of the database if none is recorded: a dump without data brings no record,
-- and nothing to protect.
create or replace function {schema}.installation_ensure()
returns void
language sql
as $$
  select {schema}.installation_record({schema}.system_identifier())
  where not exists (select from {schema}.installation)
$$;
