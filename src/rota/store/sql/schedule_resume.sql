-- End the pause of a schedule; what fell into it is not caught up with.
-- Parameters: name text; why text; by text
-- Rows: answer text (resumed, not paused, not found)
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
select rota.schedule_resume(:name::text, :why::text, :by::text) as answer
