-- Ask producers to wake a worker when they insert into these queues.
-- Parameters: peer text (its kind and name); queues text[]; for_s float8 (0: no more)
-- Rows: name text
-- Locks: the rows of the queues, in the order of their names.
-- Keeps: a wake-up costs producers nothing while no worker waits for one; and none is lost for
--   long to a worker that died or froze: whoever asks leaves it out.
insert into :schema.queue as q (name, notify_until, waiting)
select
  name,
  :schema.clock() + :for_s::float8 * interval '1 second',
  case when :for_s::float8 > 0::float8 then array[:peer::text] else '{}' end
from pg_catalog.unnest(:queues::text[]) name
order by name
on conflict (name) do update
set
  notify_until = greatest(q.notify_until, excluded.notify_until),
  waiting = pg_catalog.array_cat(
    excluded.waiting,
    array(
      select u.peer
      from pg_catalog.unnest(q.waiting) u(peer)
      join :schema.worker w on w.name = pg_catalog.split_part(u.peer, ' ', 2)
      where u.peer <> :peer::text
        and w.stopped_at is null
        and w.heartbeat_at > :schema.clock() - interval '40 seconds'
    )
  )
returning name
