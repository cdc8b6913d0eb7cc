-- Returns what keeps everything from being claimed, as JSON; NULL: nothing.
create or replace function site_paused()
returns jsonb
language sql stable
set search_path from current
as $$
  select jsonb_build_object(
    'paused_at', s.paused_at,
    'paused_until', s.paused_until,
    'paused_by', s.paused_by,
    'paused_why', s.paused_why,
    'copied', coalesce(s.copied, seen.copied)
  )
  from site s
  cross join (select copy_seen() as copied) seen
  where is_paused()
    or seen.copied is not null
$$;
