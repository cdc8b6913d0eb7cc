-- Declares the schedules of a release whose worker starts, or that is about to be deployed
-- (p_is_deploy). p_schedules is an array of objects with the columns of schedule, durations in
-- seconds. A worker of a release that is not the newest changes nothing, so that two releases side
-- by side do not overwrite each other in turn. A pause stays. next_run_at stays unless the cron
-- text or the time zone changes. Returns how many are declared.
-- Locks: the rows of the schedules, in the order of their names.
-- Keeps: an operator's pause and an unchanged schedule's next_run_at survive a deploy.
create or replace function {schema}.schedules_declare(
  p_schedules jsonb,
  p_release text,
  p_is_deploy boolean
)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  insert into {schema}.release as r (name, started_at)
  values (p_release, {schema}.clock())
  on conflict (name) do update
  set started_at = excluded.started_at
  where exists (
      select from {schema}.release o
      where o.name <> p_release
        and o.started_at >= r.started_at
    )
    and not {schema}.release_at_work(p_release);
  if not p_is_deploy and {schema}.release_newest(p_release) <> p_release then
    return 0;
  end if;
  insert into {schema}.schedule as s (
    name, origin, job_type, payload, payload_version,
    queue, priority, max_attempts, expires, meta, group_key,
    cron, timezone, catch_up, overlap, jitter,
    release, declared_at
  )
  select
    d.name, 'code', d.job_type, d.payload, d.payload_version,
    d.queue, d.priority, d.max_attempts, make_interval(secs => d.expires_s), d.meta,
    d.group_key,
    d.cron, d.timezone, d.catch_up, d.overlap, make_interval(secs => d.jitter_s),
    p_release, {schema}.clock()
  from {schema}.schedules_read(p_schedules) d
  order by d.name  -- ten workers that start at once take the locks in one order
  on conflict (name) do update
  set
    origin = 'code',
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
    release = excluded.release,
    declared_at = excluded.declared_at,
    disabled_at = null;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
