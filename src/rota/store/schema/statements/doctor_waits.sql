-- Read what jobs wait for: lanes, caps, rate limits, breakers and other jobs.
-- Parameters: names int (most names of each kind); limit int (most jobs to count of each)
-- Rows: facts text (JSON: as waits_now; and stuck: job, waits_for and why of jobs that can never go
--   on by themselves; and unread: job_type, jobs, since_s, until, releases and error of jobs that
--   wait for a release which can read their payloads)
-- Locks: none; indexes job_waits, job_put_off and job_pkey.
-- Keeps: M85, with a bound on the rows read.
select (
  :schema.waits_now(:names::int, :limit::int)::jsonb
  || jsonb_build_object(
    'unread',
    (
      select coalesce(
        jsonb_agg(
          to_jsonb(u)
          || jsonb_build_object(
            'since_s', extract(epoch from :schema.clock() - u.since),
            'until', :schema.utc_text(u.until)
          )
        ),
        '[]'
      )
      from :schema.payloads_unread('infinity'::timestamptz, :names::int, :limit::int) u
    ),
    'stuck',
    (
      select coalesce(
        jsonb_agg(
          jsonb_build_object('job', w.id, 'waits_for', w.waits_for, 'why', s.why)
          order by w.id
        ),
        '[]'
      )
      from (
        select j.id, j.waits_for
        from :schema.job j
        where j.waits_for > 'job '
          and j.waits_for < 'job!'
          and j.status <> 'running'
        order by j.waits_for
        limit :limit::int
      ) w
      cross join lateral :schema.wait_stuck(w.id) s(why)
      where s.why is not null
    )
  )
)::text as facts
