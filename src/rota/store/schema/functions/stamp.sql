-- Records which database of which server this is.
create or replace function stamp(p_system bigint)
returns void
language sql
set search_path from current
as $$
  insert into site as s (stamped_at, database_name, system_identifier)
  values (clock(), current_database(), p_system)
  on conflict (is_only) do update
  set
    stamped_at = excluded.stamped_at,
    database_name = excluded.database_name,
    system_identifier = excluded.system_identifier,
    copied = null
$$;
