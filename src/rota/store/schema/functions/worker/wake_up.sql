-- Wakes workers that wait for jobs of these queues: any p_most of each kind and queue (NULL: all),
-- but not p_not. Workers of one kind can take each other's jobs; other kinds may not know the type.
-- It wakes none while the queue or everything is paused. The payload is the queue.
create or replace function {schema}.wake_up(
  p_queues text[],
  p_most int default null,
  p_not text default null
)
returns void
language plpgsql
as $$
begin
  perform pg_notify({schema}.channel_of(split_part(w.peer, ' ', 2)), q.name)
  from {schema}.queue q
  cross join lateral (
    select
      u.peer,
      row_number() over (partition by split_part(u.peer, ' ', 1) order by random()) as place
    from unnest(q.waiting) u(peer)
    where u.peer is distinct from p_not
  ) w
  where q.name = any (p_queues)
    and q.notify_until > {schema}.clock()
    and not {schema}.is_in_force(q.paused_at, q.paused_until)
    and not {schema}.is_paused()
    and w.place <= coalesce(p_most, w.place);
end $$;
