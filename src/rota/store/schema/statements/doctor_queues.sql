-- Find queues that are paused.
-- Parameters: limit int; counted int (most due jobs to count of each pause)
-- Rows: facts text (JSON: paused: queue [NULL: everything], by, why, since_s, until, due;
--   installation: paused_at, paused_until, paused_by,
--   paused_why and copied of what keeps everything from being claimed, or NULL)
-- Locks: none.
-- Keeps: M85.
select json_build_object(
  'paused', (
    select coalesce(json_agg(p), '[]')
    from (
      select
        q.queue, q.by, q.why, q.due,
        :schema.utc_text(q.until) as until,
        extract(epoch from :schema.clock() - q.since)::float8 as since_s
      from :schema.pauses_with_due('infinity'::timestamptz, :counted::int, null) q
      order by q.queue nulls first
      limit :limit::int
    ) p
  ),
  'installation', :schema.installation_paused()
)::text as facts
