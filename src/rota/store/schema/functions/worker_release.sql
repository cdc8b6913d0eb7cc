-- Returns the release of a worker.
create or replace function worker_release(p_worker text)
returns text
language sql stable
set search_path from current
as $$
  select coalesce(
    (select w.release from worker w where w.name = p_worker),
    'unknown'
  )
$$;
