-- Writes the stamp if there is none: a dump without data has brought no stamp along, and nothing to
-- protect.
create or replace function stamp_missing()
returns void
language sql
set search_path from current
as $$
  select stamp(system_identifier())
  where not exists (select from site)
$$;
