-- Returns what keeps everything from being claimed, as JSON; NULL: nothing.
create or replace function {schema}.installation_paused()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'paused_at', i.paused_at,
    'paused_until', i.paused_until,
    'paused_by', i.paused_by,
    'paused_why', i.paused_why,
    'copied', coalesce(i.copied, seen.copied)
  )
  from {schema}.installation i
  cross join (select {schema}.copy_seen() as copied) seen
  where {schema}.is_paused()
    or seen.copied is not null
$$;
