-- Asks all workers to search a queue again from p_to on, because a job became claimable behind
-- their frontiers. It writes at most once a second, and not to a locked row: regular looks back
-- find the rest.
-- Locks: the row of the queue, at most once a second; it waits for it for a tenth of a second.
-- Keeps: jobs that became claimable behind the workers' frontiers in bulk are found at once.
create or replace function {schema}.look_back(p_queue text, p_to timestamptz)
returns void
language plpgsql
set lock_timeout = '100ms'
as $$
begin
  insert into {schema}.queue as q (name, look_back_to, look_back_asked_at)
  values (p_queue, p_to, {schema}.clock())
  on conflict (name) do update
  set
    look_back_to = excluded.look_back_to,
    -- Always later than the previous request: a worker sees only a later request.
    look_back_asked_at = greatest(
      excluded.look_back_asked_at,
      q.look_back_asked_at + interval '1 microsecond'
    )
  where q.look_back_asked_at is null
    or q.look_back_asked_at < {schema}.clock() - interval '1 second'
    or q.look_back_to > excluded.look_back_to;
exception
  when lock_not_available then null;
end $$;
