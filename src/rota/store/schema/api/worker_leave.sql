-- Records that a worker in SQL has ended, so that nothing reports it as missing.
create or replace function {schema}.worker_leave(worker text)
returns void
language sql security definer
as $$
  update {schema}.worker w
  set stopped_at = {schema}.clock()
  where w.name = worker_leave.worker
    and w.version = 'sql'
    and w.stopped_at is null
$$;
revoke execute on function {schema}.worker_leave(text) from public;
