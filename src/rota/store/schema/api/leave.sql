-- Records that a worker in SQL has ended, so that nothing reports it as missing.
create or replace function leave(worker text)
returns void
language sql security definer
set search_path from current
as $$
  update worker w
  set stopped_at = clock()
  where w.name = leave.worker
    and w.version = 'sql'
    and w.stopped_at is null
$$;
revoke execute on function leave(text) from public;
