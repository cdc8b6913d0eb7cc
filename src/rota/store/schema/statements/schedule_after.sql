-- Let a schedule tick no sooner than at a time, because its runs until then are planned elsewhere.
-- Parameters: name text; tick timestamptz (one of its ticks)
-- Rows: name text. None if the schedule ticks then, or later.
-- Locks: the row of the schedule.
-- Keeps: M82, a run that is planned there is not planned here again.
update :schema.schedule s
set next_run_at = :tick::timestamptz
where s.name = :name::text
  and (s.next_run_at is null or s.next_run_at < :tick::timestamptz)
returning s.name
