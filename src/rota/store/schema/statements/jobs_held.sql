-- Read what may hold live jobs back: their lanes, a cap, a pause.
-- Parameters: ids int8[]
-- Rows: id int8; now timestamptz; holds boolean (it holds a place of its lane); held int4 (places
--   of its lane that others hold); holders text (JSON of the first four holders: id, status,
--   since); next int8 (the first due job of its lane that waits for a place); max_running int4;
--   running int4 (of the cap that it waits for); paused text (everything, or its queue); paused_at
--   timestamptz; paused_by text; mismatched text[] (releases that could not read its payload);
--   refused text; refused_since timestamptz (what its worker cannot do, if that is to write
--   outcomes); unknown boolean (workers of the last minute serve its queue, and none knows its
--   type); awaited text (JSON: as wait_facts)
-- Locks: none; indexes job_pkey, job_lane and job_waits.
-- Keeps: M60, what a job waits for is visible.
with lane as materialized (
  select asked.group_key, held.jobs, held.first, next.id as next
  from (
    select distinct j.group_key
    from :schema.job j
    where j.id = any (:ids::int8[])
      and j.group_key is not null
  ) asked
  cross join lateral (
    select
      count(*)::int as jobs,
      json_agg(json_build_object('id', h.id, 'status', h.status, 'since', h.since) order by h.id)
        filter (where h.place <= 4) as first
    from (
      select
        o.id,
        o.status,
        case o.status
          when 'running' then o.started_at
          when 'dead' then o.failed_at
          else o.updated_at
        end as since,
        row_number() over (order by o.id) as place
      from :schema.job o
      where o.group_key = asked.group_key
        and o.in_lane
      limit 10000
    ) h
  ) held
  left join lateral (
    select n.id
    from :schema.job n
    where n.group_key = asked.group_key
      and n.in_lane is null
      and n.status in ('queued', 'failed', 'waiting')
      and n.run_at <= :schema.clock()
    order by n.priority desc, n.run_at, n.id
    limit 1
  ) next on true
),
seen as materialized (
  select w.queues, w.job_types
  from :schema.workers_seen(interval '1 minute') w
)
select
  j.id,
  :schema.clock() as now,
  j.in_lane is true as holds,
  coalesce(lane.jobs - (j.in_lane is true)::int, 0) as held,
  coalesce(lane.first, '[]')::text as holders,
  lane.next,
  cap.max_running,
  cap.running,
  pause.paused,
  pause.paused_at,
  pause.paused_by,
  coalesce(j.mismatched_releases, '{}') as mismatched,
  w.refused,
  w.refused_since,
  exists (select from seen s where s.queues ? j.queue)
    and not exists (select from seen s where j.job_type = any (s.job_types)) as unknown,
  :schema.wait_facts(j.id)::text as awaited
from :schema.job j
left join lane on lane.group_key = j.group_key
left join :schema.worker w on w.name = j.locked_by and w.refused ~ 'finisher'
left join :schema.concurrency_limits cap on cap.kind || ' ' || cap.name = j.waits_for
left join lateral (
  select p.paused, p.paused_at, p.paused_by
  from (
    select 'everything' as paused, i.paused_at, i.paused_until, i.paused_by
    from :schema.installation i
    union all
    select 'its queue ' || q.name, q.paused_at, q.paused_until, q.paused_by
    from :schema.queue q
    where q.name = j.queue
  ) p
  where :schema.is_in_force(p.paused_at, p.paused_until)
  limit 1
) pause on true
where j.id = any (:ids::int8[])
