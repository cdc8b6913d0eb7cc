-- Ask all workers to look at a queue again from an earlier time on.
-- Parameters: queue text; to timestamptz
-- Rows: look_back text
-- Locks: the row of the queue, at most once a second.
-- Keeps: what became claimable behind the workers' frontiers in bulk is found at once.
select rota.look_back(:queue::text, :to::timestamptz)::text as look_back
