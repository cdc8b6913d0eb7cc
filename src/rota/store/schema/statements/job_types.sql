-- List the declared job types.
-- Parameters: none
-- Rows: name text; aliases text[]; queue text; priority int2; max_attempts int4; timeout interval;
--   lease interval; expires interval;
--   key_arguments text[]; on_duplicate text; key_scope text; key_ttl interval;
--   group_arguments text[]; lane_capacity int2; on_retry text; on_dead text; concurrency int4;
--   history text; on_lost text; on_expired text; version int2;
--   retry_after interval[]; release text; declared_at timestamptz
-- Locks: none.
-- Keeps: M40, the retry rules can be printed.
select
  name, aliases,
  queue, priority, max_attempts,
  timeout, lease, expires,
  key_arguments, on_duplicate, key_scope, key_ttl,
  group_arguments, lane_capacity, on_retry, on_dead, concurrency,
  history, on_lost, on_expired, version, retry_after,
  release, declared_at
from :schema.job_type
order by name
