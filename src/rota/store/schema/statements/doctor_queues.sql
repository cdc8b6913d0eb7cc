-- Find queues with due jobs that no worker of the last hour serves, and queues that are paused.
-- Parameters: limit int
-- Rows: facts text (JSON: unserved: queue, waiting_s; paused: queue, until; installation:
--   paused_at, paused_until, paused_by, paused_why and copied of what keeps everything from being
--   claimed, or NULL)
-- Locks: none; index job_ready.
-- Keeps: M85, due jobs that no worker claims are seen too.
with recent as materialized (
  select w.queues
  from :schema.workers_seen(interval '1 hour') w
)
select json_build_object(
  'unserved', (
    select coalesce(json_agg(u), '[]')
    from (
      select
        r.queue,
        extract(epoch from :schema.clock() - min(r.run_at))::float8 as waiting_s
      from :schema.ready_heads(1) r
      where r.run_at <= :schema.clock()
        and not exists (select from recent w where w.queues ? r.queue)
      group by r.queue
      order by 2 desc
      limit :limit::int
    ) u
  ),
  'paused', (
    select coalesce(json_agg(p), '[]')
    from (
      select q.name as queue, q.paused_until as until
      from :schema.queue q
      where :schema.is_in_force(q.paused_at, q.paused_until)
      order by q.name
      limit :limit::int
    ) p
  ),
  'installation', :schema.installation_paused()
)::text as facts
