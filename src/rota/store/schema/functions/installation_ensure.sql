-- Records the identity of the database if none is recorded: a dump without data brings no record,
-- and nothing to protect.
create or replace function installation_ensure()
returns void
language sql
set search_path from current
as $$
  select installation_record(system_identifier())
  where not exists (select from installation)
$$;
