-- Records the identity of the database if none is recorded, as after a dump without data.
create or replace function {schema}.installation_ensure()
returns void
language sql
as $$
  select {schema}.installation_record({schema}.system_identifier())
  where not exists (select from {schema}.installation)
$$;
