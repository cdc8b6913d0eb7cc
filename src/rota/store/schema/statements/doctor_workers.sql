-- Read the workers of the last hour: which are alive, which stopped sending heartbeats, and how
-- many results came too late to be written.
-- Parameters: limit int
-- Rows: facts text (JSON: alive, stopped [in order], silent: name, silent_s; rejected: name,
--   rejected; waiting_s of the oldest due job or NULL)
-- Locks: none; index job_ready.
-- Keeps: M86, a person can see that no worker is alive; M32.
with crew as materialized (
  select
    w.*,
    w.stopped_at is null and w.heartbeat_at > :schema.clock() - interval '1 minute' as is_alive,
    extract(epoch from :schema.clock() - w.heartbeat_at)::float8 as silent_s
  from :schema.worker w
  where coalesce(w.stopped_at, w.heartbeat_at) > :schema.clock() - interval '1 hour'
)
select json_build_object(
  'alive', (select count(*) from crew c where c.is_alive),
  'stopped', (select count(*) from crew c where c.stopped_at is not null),
  'silent', (
    select coalesce(json_agg(s), '[]')
    from (
      select c.name, c.silent_s
      from crew c
      where not c.is_alive
        and c.stopped_at is null
      order by c.silent_s
      limit :limit::int
    ) s
  ),
  'rejected', (
    select coalesce(json_agg(r), '[]')
    from (
      select c.name, c.rejected
      from crew c
      where c.rejected > 0
      order by c.rejected desc
      limit :limit::int
    ) r
  ),
  'waiting_s', extract(epoch from :schema.clock() - :schema.oldest_due())::float8
)::text as facts
