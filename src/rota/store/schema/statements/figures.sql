-- Read what ended in the last hours, as the roll-up has counted it, latest hour first.
-- Parameters: hours int (with the current hour); job_type text (NULL: all); queue text (NULL: all)
-- Rows: complete_to timestamptz (the figures are complete up to it); job_type text;
--   hour timestamptz; succeeded int8; succeeded_late int8; retried int8; dead int8; cancelled int8;
--   releases text; waited text; ran text. A row for each hour, type and queue; if nothing ended,
--   one row with NULL from job_type on. releases, waited and ran are JSON: failed attempts by
--   release, times by bucket.
-- Locks: none; index stat_hour_pkey.
-- Keeps: M85, with a bound on the rows read: the rows of the hours asked for.
select
  r.complete_to,
  s.job_type,
  s.hour,
  s.succeeded, s.succeeded_late,
  s.retried, s.dead, s.cancelled,
  s.failed_by_release::text as releases,
  s.waited::text as waited,
  s.ran::text as ran
from :schema.stat_rollup r
left join :schema.stat_hour s
  on s.hour > date_trunc('hour', :schema.clock(), 'UTC') - :hours::int::float8 * interval '1 hour'
  and (:job_type::text is null or s.job_type = :job_type::text)
  and (:queue::text is null or s.queue = :queue::text)
order by s.hour desc, s.job_type
