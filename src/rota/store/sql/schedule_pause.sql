-- Pause a schedule.
-- Parameters: name text; why text; by text
-- Rows: answer text (paused, not found)
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
select rota.schedule_pause(:name::text, :why::text, :by::text) as answer
