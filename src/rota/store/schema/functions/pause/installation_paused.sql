-- Returns what keeps everything from being claimed, as JSON; NULL: nothing.
create or replace function {schema}.installation_paused()
returns jsonb
language sql stable
as $$
  select jsonb_build_object(
    'paused_at', i.paused_at,
    'paused_until', i.paused_until,
    'paused_by', i.paused_by,
    'paused_why', i.paused_why,
    'copied', {schema}.copy_seen()
  )
  from (values (0)) once
  left join {schema}.installation i on true
  where {schema}.is_paused()
$$;
