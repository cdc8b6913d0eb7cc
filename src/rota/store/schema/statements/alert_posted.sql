-- Record that the notifications of an alert, up to this one, are posted.
-- Parameters: rule text; subject text; notifications int
-- Rows: posted int4
-- Locks: the alert's row.
-- Keeps: M86, what was posted is not posted again.
update :schema.alert
set posted = greatest(posted, :notifications::int)
where rule = :rule::text
  and subject = :subject::text
returning posted
