-- Returns schedule definitions, which clients send as JSON, as rows.
create or replace function {schema}.schedules_read(p_schedules jsonb)
returns table (
  name text,
  job_type text,
  payload jsonb,
  payload_version smallint,
  queue text,
  priority smallint,
  max_attempts int,
  expires_s float8,
  meta jsonb,
  group_key text,
  cron text,
  timezone text,
  catch_up text,
  overlap text,
  jitter_s float8
)
language sql immutable
as $$
  select *
  from jsonb_to_recordset(p_schedules) d(
    name text,
    job_type text,
    payload jsonb,
    payload_version smallint,
    queue text,
    priority smallint,
    max_attempts int,
    expires_s float8,
    meta jsonb,
    group_key text,
    cron text,
    timezone text,
    catch_up text,
    overlap text,
    jitter_s float8
  )
$$;
