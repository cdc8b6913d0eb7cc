-- Find queues that are paused.
-- Parameters: limit int
-- Rows: facts text (JSON: paused: queue, until; installation: paused_at, paused_until, paused_by,
--   paused_why and copied of what keeps everything from being claimed, or NULL)
-- Locks: none.
-- Keeps: M85.
select json_build_object(
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
