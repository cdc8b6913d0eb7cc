-- Enqueue a run of a schedule now.
-- Parameters: name text; why text; by text
-- Rows: job int8 (NULL: no such schedule)
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
select rota.schedule_trigger(:name::text, :why::text, :by::text) as job
