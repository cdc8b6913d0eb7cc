-- Resume a queue.
-- Parameters: queue text; why text; by text
-- Rows: resumed bool (false: it was not paused)
-- Locks: the row of the queue.
-- Keeps: M87.
select rota.queue_resume(:queue::text, :why::text, :by::text) as resumed
