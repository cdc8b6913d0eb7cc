-- Whether everything is paused, or this is a restored copy that nobody has released: then nothing may be
-- claimed, and no schedule may tick. It has no search_path of its own, for every claim asks it: whoever
-- calls it has one.
create or replace function is_paused() returns boolean
language plpgsql stable as $$
begin
  return exists (
    select from site s
    where s.copied is not null or is_in_force(s.paused_at, s.paused_until));
end $$;
