-- Records the identity of this installation: which database of which server it is.
create or replace function {schema}.installation_record(p_system bigint)
returns void
language sql
as $$
  insert into {schema}.installation (recorded_at, database_name, system_identifier)
  values ({schema}.clock(), current_database(), p_system)
  on conflict (is_only) do update
  set
    recorded_at = excluded.recorded_at,
    database_name = excluded.database_name,
    system_identifier = excluded.system_identifier
$$;
