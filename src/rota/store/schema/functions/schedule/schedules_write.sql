-- Writes schedules: an array of objects with columns of schedule. With p_origin 'code' p_release
-- declares them; otherwise a schedule that code declares is left as it is. A person's pause stays,
-- and next_run_at stays unless the cron text or the time zone changes. Returns the schedules that
-- were written, and whether each is new.
-- Locks: the rows of the schedules, in the order of their names, as every starting worker does.
create or replace function {schema}.schedules_write(
  p_schedules jsonb,
  p_origin text,
  p_release text
)
returns table (name text, made boolean)
language sql
as $$
  insert into {schema}.schedule as s (
    name, origin,
    {scheduled},
    expires, cron, timezone, catch_up, overlap, jitter,
    release, declared_at
  )
  select
    d.name, p_origin,
    {d.scheduled},
    d.expires, d.cron,
    coalesce(d.timezone, 'UTC'), coalesce(d.catch_up, 'latest'), coalesce(d.overlap, 'skip'),
    d.jitter,
    p_release, case when p_release is not null then {schema}.clock() end
  from jsonb_array_elements(p_schedules) given
  cross join lateral jsonb_populate_record(
    null::{schema}.schedule,
    given || jsonb_build_object('payload', coalesce(nullif(given -> 'payload', 'null'), '{}'))
  ) d
  order by d.name
  on conflict (name) do update
  set
    origin = excluded.origin,
    ({scheduled}) = row({excluded.scheduled}),
    expires = excluded.expires,
    cron = excluded.cron,
    timezone = excluded.timezone,
    catch_up = excluded.catch_up,
    overlap = excluded.overlap,
    jitter = excluded.jitter,
    release = coalesce(excluded.release, s.release),
    declared_at = coalesce(excluded.declared_at, s.declared_at),
    disabled_at = null,
    paused_at = case when not s.refused then s.paused_at end
  where p_origin = 'code'
    or s.origin <> 'code'
    or s.disabled_at is not null
  returning s.name, s.xmax = 0
$$;
