-- Writes schedules: an array of objects with columns of schedule. With p_origin 'code' they are
-- those of p_release. Otherwise a schedule that code declares is left as it is. A pause stays, and
-- next_run_at stays unless the cron text or the time zone changes. Returns the schedules that were
-- written, and whether each is new.
-- Locks: the rows of the schedules, in the order of their names: ten workers that start at once
--   take the locks in one order.
create or replace function {schema}.schedules_write(
  p_schedules jsonb,
  p_origin text,
  p_release text
)
returns table (name text, made boolean)
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into {schema}.schedule as s (
    name, origin, job_type, payload, payload_version,
    queue, priority, max_attempts, expires, meta, group_key,
    cron, timezone, catch_up, overlap, jitter,
    release, declared_at
  )
  select
    d.name, p_origin, d.job_type, coalesce(d.payload, '{}'), d.payload_version,
    d.queue, d.priority, d.max_attempts, d.expires, d.meta, d.group_key,
    d.cron,
    coalesce(d.timezone, 'UTC'), coalesce(d.catch_up, 'latest'), coalesce(d.overlap, 'skip'),
    d.jitter,
    p_release, case when p_release is not null then {schema}.clock() end
  from jsonb_populate_recordset(null::{schema}.schedule, p_schedules) d
  order by d.name
  on conflict (name) do update
  set
    origin = excluded.origin,
    job_type = excluded.job_type,
    payload = excluded.payload,
    payload_version = excluded.payload_version,
    queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    expires = excluded.expires,
    meta = excluded.meta,
    group_key = excluded.group_key,
    cron = excluded.cron,
    timezone = excluded.timezone,
    catch_up = excluded.catch_up,
    overlap = excluded.overlap,
    jitter = excluded.jitter,
    release = coalesce(excluded.release, s.release),
    declared_at = coalesce(excluded.declared_at, s.declared_at),
    disabled_at = null
  where p_origin = 'code'
    or s.origin <> 'code'
    or s.disabled_at is not null
  returning s.name, s.xmax = 0
$$;
