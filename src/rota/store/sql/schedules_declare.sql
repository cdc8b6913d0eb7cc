-- Declare the schedules of a release.
-- Parameters: schedules text (JSON array of definitions); release text; is_deploy bool (also when it is not the newest that runs)
-- Rows: count int4
-- Locks: the rows of the schedules, in the order of their names.
-- Keeps: an operator's pause and an unchanged schedule's next_run_at survive a deploy.
select rota.schedules_declare(:schedules::text::jsonb, :release::text, :is_deploy::bool) as count
