-- Whether everything is paused, or this is a restored copy that nobody has released: then nothing may be claimed, and no schedule may tick.
create or replace function is_paused() returns boolean language sql stable set enable_seqscan = off set search_path from current as $$
  select exists (select from site s
                 where s.copied is not null or s.paused_at is not null and (s.paused_until is null or s.paused_until > clock()))
$$;
