-- Ask producers to wake a worker when they insert into these queues. Locked queues are left out.
-- Parameters: peer text (its kind and name); queues text[]; for_s float8 (0: no more)
-- Rows: name text (of the queues that were not left out)
-- Locks: the rows of the queues, with SKIP LOCKED.
-- Keeps: a wake-up costs nothing while no worker waits, and a dead worker takes none for long.
with asked as materialized (
  select
    q.name,
    :schema.clock() + :for_s::float8 * interval '1 second' as notify_until,
    case when :for_s::float8 > 0::float8 then array[:peer::text] else '{}' end as waiting
  from pg_catalog.unnest(:queues::text[]) q(name)
),
free as materialized (
  select q.name
  from :schema.queue q
  where q.name = any (:queues::text[])
  for update skip locked
),
made as (
  insert into :schema.queue (name, notify_until, waiting)
  select a.name, a.notify_until, a.waiting
  from asked a
  where not exists (select from :schema.queue q where q.name = a.name)
  on conflict (name) do nothing
  returning name
),
changed as (
  update :schema.queue q
  set
    notify_until = greatest(q.notify_until, a.notify_until),
    waiting = pg_catalog.array_cat(
      a.waiting,
      array(
        select u.peer
        from pg_catalog.unnest(q.waiting) u(peer)
        join :schema.worker w on w.name = pg_catalog.split_part(u.peer, ' ', 2)
        where u.peer <> :peer::text
          and w.stopped_at is null
          and w.heartbeat_at > :schema.clock() - interval '40 seconds'
      )
    )
  from asked a
  join free f on f.name = a.name
  where q.name = a.name
  returning q.name
)
select name from made
union all
select name from changed
