-- Since when the pause of a queue, or of everything, is in force; NULL: it is not. Paused again, it is since then still, and who, why and until when are
-- the newest: people take a pause over from each other. The pause of a schedule goes by the same rule (0008_schedule.sql), and has no end of its own.
create or replace function paused_since(p_paused_at timestamptz, p_paused_until timestamptz) returns timestamptz language sql stable
set search_path from current as $$ select case when p_paused_until <= clock() then null else p_paused_at end $$;
