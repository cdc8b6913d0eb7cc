-- Returns whether everything is paused, or this is a restored copy that no person has released,
-- also a copy that was restored under a worker: then nothing is claimed, and no schedule ticks.
create or replace function {schema}.is_paused()
returns boolean
language plpgsql stable
as $$
begin
  return {schema}.copy_seen() is not null or exists (
    select from {schema}.installation i
    where {schema}.is_in_force(i.paused_at, i.paused_until)
  );
end $$;
