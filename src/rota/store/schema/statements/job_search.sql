-- Find jobs, live and finished, newest first. Every filter is optional (NULL).
-- Parameters: ids int8[]; status text; job_type text; queue text; idempotency_key text;
--   group_key text; batch int8; error_type text; error text (a part of its text);
--   since timestamptz; since_ago interval (instead of since);
--   until timestamptz; until_ago interval (instead of until);
--   before int8 (only ids below); limit int
-- Rows: id int8; origin_id int8; queue text; job_type text; payload text; payload_version int2;
--   priority int2; run_at timestamptz; expires_at timestamptz; attempts int4; max_attempts int4;
--   claims int4; idempotency_key text; meta text; created_at timestamptz;
--   schedule text; scheduled_for timestamptz; losses int2; timeout_s float8;
--   group_key text; batch int8; locked_by text; started_at timestamptz; status text;
--   locked_until timestamptz;
--   cancel_requested_at timestamptz; cancel_reason text; progress text; last_error text;
--   error_type text; response_code int4; verdict text; verdict_rule text;
--   lane_capacity int2; waits_for text; waits_since timestamptz;
--   updated_at timestamptz; failed_at timestamptz;
--   finished_at timestamptz; result text; release text; resolution text.
-- Locks: none; indexes job_pkey, job_history_id, attempt_finished, batch_part_pkey and that of the
--   keys; of history the days asked for.
-- Keeps: M85, within a second for the last day at ten million rows of history.
select
  id, origin_id, queue, job_type, payload::text, payload_version,
  priority, run_at, expires_at, attempts, max_attempts,
  claims, idempotency_key, meta::text, created_at,
  schedule, scheduled_for, losses, extract(epoch from timeout)::float8 as timeout_s,
  group_key, batch, locked_by, started_at, status, locked_until,
  cancel_requested_at, cancel_reason, progress::text, last_error,
  error_type, response_code, verdict, verdict_rule,
  lane_capacity, waits_for, waits_since, updated_at, failed_at,
  finished_at, result::text, release, resolution::text
from :schema.jobs_find(
  :ids::int8[],
  :status::text,
  :job_type::text,
  :queue::text,
  :idempotency_key::text,
  :group_key::text,
  :batch::int8,
  :error_type::text,
  :error::text,
  coalesce(:since::timestamptz, :schema.clock() - :since_ago::interval),
  coalesce(:until::timestamptz, :schema.clock() - :until_ago::interval),
  :before::int8,
  :limit::int
)
order by id desc
