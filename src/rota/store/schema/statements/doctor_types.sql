-- Read the declared types.
-- Parameters: none
-- Rows: facts text (JSON: declared: every name, former ones too; types: name, queue, priority,
--   group_key [whether it declares one], on_retry, on_dead, max_running, breaker)
-- Locks: none.
-- Keeps: M85.
select json_build_object(
  'declared', (
    select coalesce(json_agg(distinct n.name), '[]')
    from :schema.job_type t
    cross join lateral unnest(t.name || t.aliases) n(name)
  ),
  'types', (
    select coalesce(
      json_agg(
        json_build_object(
          'name', t.name,
          'queue', t.queue,
          'priority', t.priority,
          'group_key', t.group_arguments is not null,
          'on_retry', t.on_retry,
          'on_dead', t.on_dead,
          'max_running', t.max_running,
          'breaker', t.breaker
        )
        order by t.name
      ),
      '[]'
    )
    from :schema.job_type t
  )
)::text as facts
