-- Returns whether everything is paused, or this is a restored copy that no person has released. If
-- so, nothing may be claimed and no schedule may tick.
create or replace function {schema}.is_paused()
returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (
    select from {schema}.installation i
    where i.copied is not null
      or {schema}.is_in_force(i.paused_at, i.paused_until)
  );
end $$;
