-- Delete a schedule that is not declared in code.
-- Parameters: name text; why text; by text
-- Rows: answer text (deleted, code, not found)
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
select rota.schedule_delete(:name::text, :why::text, :by::text) as answer
