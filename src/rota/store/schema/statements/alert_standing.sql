-- Read the state of a rule's alerts, by subject.
-- Parameters: rule text
-- Rows: subject text; notifications int4; is_over bool; missed int4; notified_s float8 (seconds
--   since the last notification); severity text (that it reported)
-- Locks: none; index alert_pkey.
-- Keeps: M86, each fires once, repeats after a while and says when it is over.
select
  subject,
  notifications,
  over_at is not null as is_over,
  missed,
  extract(epoch from :schema.clock() - last_notified_at)::float8 as notified_s,
  severity
from :schema.alert
where rule = :rule::text
