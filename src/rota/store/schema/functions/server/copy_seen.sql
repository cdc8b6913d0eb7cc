-- Returns how the recorded identity differs from this database and server, as in a restored copy;
-- NULL: it does not. It only reads. If either side does not know the server, the names of the
-- databases decide. Without a record a dump is being restored: `migrate` makes the record.
-- One copy may record its own identity without a person, because it has nothing to protect: made by
-- CREATE DATABASE … TEMPLATE of a schema that had no job and never had a worker. There the rows of
-- `migration` are older than the database (in a restored dump they are younger), and none of the
-- oldest thousand jobs is as old as the database.
create or replace function {schema}.copy_seen()
returns text
language plpgsql stable
as $$
declare
  v_installation {schema}.installation;
  v_system bigint := {schema}.system_identifier();
  v_same boolean;
  v_age int;
begin
  select * into v_installation
  from {schema}.installation;
  if not found then
    return 'the database has no record of which one it is';
  end if;
  v_same := v_installation.database_name = current_database()
    and coalesce(v_installation.system_identifier = v_system, true);
  if not v_same
    and v_installation.worked_at is null
    and coalesce(v_installation.system_identifier = v_system, true)
  then
    v_age := (select age(d.xmin) from pg_database d where d.datname = current_database());
    v_same := exists (select from {schema}.migration m where age(m.xmin) > v_age)
      and not exists (
        select from (
          select j.xmin as made
          from {schema}.job j
          order by j.id
          limit 1000
        ) oldest
        where age(oldest.made) >= v_age
      );
  end if;
  if v_same then
    return null;
  end if;
  return format(
    'recorded as database %I of server %s, and this is database %I of server %s',
    v_installation.database_name, coalesce(v_installation.system_identifier::text, 'unknown'),
    current_database(), coalesce(v_system::text, 'unknown')
  );
end $$;
