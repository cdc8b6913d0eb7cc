-- Make or change a schedule.
-- Parameters: schedule text (JSON, a definition); origin text; why text; by text
-- Rows: answer text (made, changed, code)
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
select rota.schedule_put(:schedule::text::jsonb, :origin::text, :why::text, :by::text) as answer
