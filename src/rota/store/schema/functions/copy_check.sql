-- Checks whether this is a restored copy, as a worker does, and writes what has changed.
-- Locks: the row of the site, when the check finds something other than the row says.
-- Keeps: M87; a production dump in staging does nothing until a person releases it.
create or replace function copy_check()
returns text
language plpgsql
set search_path from current
as $$
declare
  v_site site;
  v_copied text;
begin
  perform stamp_missing();
  select * into v_site
  from site;
  v_copied := copy_seen();
  if v_copied is distinct from v_site.copied
    or v_copied is null
      and (v_site.worked_at is null or v_site.database_name <> current_database())
  then
    -- It never waits for the row: a claim in SQL may check in a transaction that stays open. If
    -- another session stamped the row in the meantime, its stamp wins.
    perform from site s
    where s.stamped_at = v_site.stamped_at
    for no key update skip locked;
    if found then
      if v_copied is null and v_site.database_name <> current_database() then
        perform stamp(system_identifier());
      end if;
      update site
      set
        copied = v_copied,
        worked_at = case when v_copied is null then coalesce(worked_at, clock()) else worked_at end;
    end if;
  end if;
  return v_copied;
end $$;
