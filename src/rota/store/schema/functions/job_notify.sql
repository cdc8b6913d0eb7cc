-- Wakes workers when a job is inserted. A commit that carries a NOTIFY holds a database-wide lock
-- until it is flushed. So only due rows wake a worker, and only a worker that waits for their
-- queue. The channel has the schema's name; its payload is the queue.
create or replace function {schema}.job_notify()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from {schema}.queue q where q.notify_until > {schema}.clock()) then
    perform {schema}.wake_up(array(
      select distinct f.queue
      from fresh f
      where f.status = 'queued'
        and f.run_at <= {schema}.clock()
    ));
  end if;
  return null;
end $$;
