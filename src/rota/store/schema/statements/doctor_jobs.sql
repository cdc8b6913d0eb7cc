-- Read the wait of the oldest due job, the number of dead jobs, late or stopped schedules, and
-- batches whose next job the database refuses.
-- Parameters: limit int (most dead jobs to count); late interval (how late a schedule may be)
-- Rows: facts text (JSON: waiting_s [NULL: nothing is due], dead, dead_s of the oldest; dead_of:
--   the three most frequent job_type, error_type [NULL: none] and jobs of the newest; overdue:
--   of the five latest schedules without, and five with, a reason: name, late_s, stopped_why [NULL:
--   it has not stopped by itself], last_error [NULL: none]; overdue_count: of all; failing: of five
--   active schedules whose runs do nothing, name and why; unfollowed: of the five oldest of these
--   batches, id, ended_s and then_error)
-- Locks: none; indexes job_ready, job_dead and batch_then_failed.
-- Keeps: M85; M44; M82.
select json_build_object(
  'waiting_s', extract(epoch from :schema.clock() - :schema.oldest_due())::float8,
  'dead', d.jobs,
  'dead_s', extract(epoch from :schema.clock() - d.oldest_at)::float8,
  'dead_of', (
    select coalesce(json_agg(t order by t.jobs desc, t.job_type, t.error_type), '[]')
    from (
      select n.job_type, n.error_type, count(*) as jobs
      from (
        select j.job_type, j.error_type
        from :schema.job j
        where j.status = 'dead'
        order by j.failed_at desc
        limit :limit::int
      ) n
      group by n.job_type, n.error_type
      order by 3 desc, 1, 2
      limit 3
    ) t
  ),
  'overdue', (
    select coalesce(
      json_agg(json_build_object(
        'name', s.name,
        'stopped_why', s.stopped_why,
        'last_error', s.last_error,
        'late_s', extract(epoch from :schema.clock() - s.since)::float8
      )),
      '[]'
    )
    from (
      select o.*
      from :schema.schedules_overdue(:late::interval, null::int) o
      order by
        row_number() over (
          partition by o.stopped_why is null and o.last_error is null
          order by o.since, o.name
        ),
        o.since, o.name
      limit 5
    ) s
  ),
  'failing', (
    select coalesce(json_agg(json_build_object('name', f.name, 'why', f.why)), '[]')
    from (
      select s.name, t.why
      from :schema.schedule s
      cross join lateral :schema.schedule_trouble(s) t(why)
      where t.why is not null
        and s.cron is not null
        and s.paused_at is null
        and s.disabled_at is null
        and not :schema.is_paused()
      order by s.name
      limit 5
    ) f
  ),
  'unfollowed', (
    select coalesce(json_agg(u order by u.id), '[]')
    from (
      select b.id, extract(epoch from :schema.clock() - b.ended_at)::float8 as ended_s, b.then_error
      from :schema.batch b
      where b.then_error is not null
      order by b.id
      limit 5
    ) u
  ),
  'overdue_count', (select count(*) from :schema.schedules_overdue(:late::interval, null::int))
)::text as facts
from :schema.dead_jobs(:limit::int) d
