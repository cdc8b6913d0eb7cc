-- Ask producers for a wake-up when they insert into these queues.
-- Parameters: queues text[]; until_s float8 (seconds from now; 0: no more)
-- Rows: name text
-- Locks: the rows of the queues, in the order of their names.
-- Keeps: a wake-up costs producers nothing while no worker waits for one.
insert into :schema.queue as q (name, notify_until)
select name, :schema.clock() + :until_s::float8 * interval '1 second'
from pg_catalog.unnest(:queues::text[]) name
order by name
on conflict (name) do update
set notify_until = excluded.notify_until
returning name
