-- Records which database of which server this is, if nothing is recorded, as after a dump without
-- data; with p_anew also over what is recorded.
create or replace function {schema}.installation_record(p_anew boolean)
returns void
language plpgsql
as $$
begin
  if p_anew or not exists (select from {schema}.installation) then
    insert into {schema}.installation (recorded_at, database_name, system_identifier)
    values ({schema}.clock(), current_database(), {schema}.system_identifier())
    on conflict (is_only) do update
    set
      recorded_at = excluded.recorded_at,
      database_name = excluded.database_name,
      system_identifier = excluded.system_identifier;
  end if;
end $$;
