-- Creates a schedule, or changes the one of that name. p_origin is api, cli or sql. A pause and
-- next_run_at stay as in schedules_declare. Returns `made`, `changed`, or `code`: code declares the
-- schedule, and nothing was changed.
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
create or replace function {schema}.schedule_put(
  p_schedule jsonb,
  p_origin text,
  p_why text default null,
  p_by text default null
)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text := p_schedule ->> 'name';
  v_refusal text := (
    select {schema}.key_refusal('{}'::text[], array[d.job_type])
    from {schema}.schedules_read(jsonb_build_array(p_schedule)) d
    where d.group_key is null
  );
  v_made boolean;
begin
  if v_refusal is not null then
    raise exception
      'rota.schedule_put: %; give the schedule one, which its jobs have; nothing was changed',
      v_refusal
      using errcode = 'invalid_parameter_value';
  end if;
  insert into {schema}.schedule as s (
    name, origin, job_type, payload, payload_version,
    queue, priority, max_attempts, expires, meta, group_key,
    cron, timezone, catch_up, overlap, jitter
  )
  select
    d.name, p_origin, d.job_type, coalesce(d.payload, '{}'), d.payload_version,
    d.queue, d.priority, d.max_attempts, make_interval(secs => d.expires_s), d.meta,
    d.group_key,
    d.cron,
    coalesce(d.timezone, 'UTC'),
    coalesce(d.catch_up, 'latest'),
    coalesce(d.overlap, 'skip'),
    make_interval(secs => d.jitter_s)
  from {schema}.schedules_read(jsonb_build_array(p_schedule)) d
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
    disabled_at = null
  where s.origin <> 'code'
    or s.disabled_at is not null
  returning s.xmax = 0 into v_made;
  if v_made is null then
    return 'code';
  end if;
  perform {schema}.log_action('put'::text, p_why, p_by, v_name, p_detail => p_schedule);
  return case when v_made then 'made' else 'changed' end;
end $$;
revoke execute on function {schema}.schedule_put(jsonb, text, text, text) from public;
