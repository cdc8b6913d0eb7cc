-- Writes the heartbeat of a worker in SQL, at most every five seconds. It never waits for the row:
-- a session of the same worker may keep a transaction open.
create or replace function {schema}.sql_worker_seen(
  p_worker text,
  p_queue text,
  p_types text[],
  p_release text
)
returns void
language plpgsql
as $$
declare
  v_due boolean;
begin
  select
    w.heartbeat_at < {schema}.clock() - interval '5 seconds'
    or w.stopped_at is not null
    or not w.queues ? p_queue
    or not w.job_types @> p_types
    or w.release <> p_release
  into v_due
  from {schema}.worker w
  where w.name = p_worker;
  if not found then
    insert into {schema}.worker (name, host, pid, version, release, job_types, queues)
    values (
      p_worker,
      coalesce(host(inet_client_addr()), 'local'),
      pg_backend_pid(),
      'sql',
      p_release,
      p_types,
      jsonb_build_object(p_queue, null)
    )
    on conflict do nothing;
  elsif v_due then
    update {schema}.worker w
    set
      heartbeat_at = {schema}.clock(),
      stopped_at = null,
      release = p_release,
      queues = w.queues || jsonb_build_object(p_queue, null),
      job_types = array(
        select distinct known
        from unnest(w.job_types || p_types) known
        order by known
      )
    where w.name = (
      select free.name
      from {schema}.worker free
      where free.name = p_worker
      for no key update skip locked
    );
  end if;
end $$;
