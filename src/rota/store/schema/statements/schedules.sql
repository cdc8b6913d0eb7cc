-- Read schedules.
-- Parameters: name text (NULL: all)
-- Rows: name text; origin text; job_type text; payload_json text; queue text; priority int4;
--   max_attempts int4; expires_s float8; meta_json text; group_key text; cron text; timezone text;
--   catch_up text; overlap text; jitter_s float8; paused_at timestamptz; paused_by text;
--   paused_why text; disabled_at timestamptz; next_run_at timestamptz; since timestamptz;
--   last_run_at timestamptz; last_job int8; last_error text (or why its runs do nothing);
--   release text;
--   created_at timestamptz; updated_at timestamptz; now timestamptz; hidden_fields text[]
-- Locks: none; indexes schedule_pkey, schedule_run_pkey and job_pkey.
-- Keeps: M10, a schedule is a row that holds everything about it.
select
  s.name,
  s.origin,
  s.job_type,
  s.payload::text as payload_json,
  s.queue,
  s.priority::int,
  s.max_attempts,
  extract(epoch from s.expires)::float8 as expires_s,
  s.meta::text as meta_json,
  s.group_key,
  s.cron,
  s.timezone,
  s.catch_up,
  s.overlap,
  extract(epoch from s.jitter)::float8 as jitter_s,
  s.paused_at,
  s.paused_by,
  s.paused_why,
  s.disabled_at,
  s.next_run_at,
  s.since,
  s.last_run_at,
  s.last_job,
  coalesce(s.last_error, :schema.schedule_trouble(s)) as last_error,
  s.release,
  s.created_at,
  s.updated_at,
  :schema.clock() as now,
  :schema.hidden_fields(s.job_type) as hidden_fields
from :schema.schedule s
where :name::text is null
  or s.name = :name::text
order by s.name
