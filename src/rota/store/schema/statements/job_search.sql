-- Find jobs, live and finished, newest first. Every filter is optional (NULL).
-- Parameters: ids int8[]; status text; job_type text; queue text; key text (an idempotency key);
--   group_key text; batch int8; error_type text; error text (a part of its text);
--   since timestamptz; since_ago interval (instead of since); until timestamptz; until_ago interval
--   (instead of until); before int8 (only ids below); limit int; payload text; meta text (JSON that
--   they contain); waiting boolean (only jobs that something holds back)
-- Rows: {job}.
-- Locks: none; indexes job_pkey, job_history_id, attempt_finished, batch_part_pkey and that of the
--   keys; of history the days asked for. By payload or meta it reads each of these rows, unless the
--   user made an index.
-- Keeps: M85, within a second for the last day at ten million rows of history.
select
  {job}
from :schema.jobs_find(
  :ids::int8[],
  :status::text,
  :job_type::text,
  :queue::text,
  :key::text,
  :group_key::text,
  :batch::int8,
  :error_type::text,
  :error::text,
  coalesce(:since::timestamptz, :schema.clock() - :since_ago::interval),
  coalesce(:until::timestamptz, :schema.clock() - :until_ago::interval),
  :before::int8,
  :limit::int,
  :payload::text::jsonb,
  :meta::text::jsonb,
  :waiting::boolean
)
order by id desc
