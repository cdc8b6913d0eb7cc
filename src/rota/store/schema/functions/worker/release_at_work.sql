-- Returns whether a release is at work: a worker of it is alive, or was a drain: else two
-- crontabs of drains would take turns as the newest.
create or replace function {schema}.release_at_work(p_release text)
returns boolean
language sql stable
as $$
  select exists (
    select from {schema}.worker w
    where w.release = p_release
      and (
        {schema}.is_alive(w.heartbeat_at, w.stopped_at)
        or w.stopped_at > {schema}.clock() - interval '10 minutes'
          and {schema}.was_drain(w.started_at, w.stopped_at)
      )
  )
$$;
