-- Checks whether this is a restored copy, for a worker that is about to work here. If not, it
-- records that a worker has been here, and under which name.
-- Locks: the row of `installation`, when it has something to record.
-- Keeps: M87; a production dump in staging does nothing until a person releases it.
create or replace function {schema}.copy_check()
returns text
language plpgsql
as $$
declare
  v_installation {schema}.installation;
  v_copied text := {schema}.copy_seen();
begin
  select * into v_installation
  from {schema}.installation;
  if v_copied is null
    and (v_installation.worked_at is null or v_installation.database_name <> current_database())
  then
    -- It never waits for the row: a claim in SQL may stay in an open transaction. An identity that
    -- another session recorded meanwhile wins.
    perform from {schema}.installation i
    where i.recorded_at = v_installation.recorded_at
    for no key update skip locked;
    if found then
      if v_installation.database_name <> current_database() then
        perform {schema}.installation_record(true);
      end if;
      update {schema}.installation
      set worked_at = coalesce(worked_at, {schema}.clock());
    end if;
  end if;
  return v_copied;
end $$;
