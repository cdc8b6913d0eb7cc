-- Records that a worker in SQL has ended, so that nothing reports it as missing.
create or replace function {schema}.leave(worker text)
returns void
language sql security definer
as $$
  update {schema}.worker w
  set stopped_at = {schema}.clock()
  where w.name = leave.worker
    and w.version = 'sql'
    and w.stopped_at is null
$$;
revoke execute on function {schema}.leave(text) from public;
