-- Returns whether everything is paused, or this is a restored copy that no person has released. If
-- so, nothing may be claimed and no schedule may tick.
create or replace function is_paused()
returns boolean
language plpgsql stable set search_path from current
as $$
begin
  return exists (
    select from installation i
    where i.copied is not null
      or is_in_force(i.paused_at, i.paused_until)
  );
end $$;
