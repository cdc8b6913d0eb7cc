-- Read from the audit log, in order, what people did to jobs, and to their queues, to everything
-- and to what they wait for during their life; and of which jobs these are another run.
-- Parameters: jobs int8[]; created timestamptz[] (when each was made, also the time of the action
--   of another run); queues text[]; waits text[] (their waits_for); since timestamptz;
--   until timestamptz (NULL: now); limit int
-- Rows: at timestamptz; verb text; job int8; queue text; by text; why text; detail text
-- Locks: none; indexes action_job and action_at.
-- Keeps: M87, who and why.
select a.at, a.verb, a.job, a.queue, a.by, a.why, a.detail::text as detail
from (
  (
    select o.id, o.at, o.verb, o.job, o.queue, o.by, o.why, o.detail
    from :schema.action o
    where o.job = any (:jobs::int8[])
    order by o.at desc
    limit :limit::int
  )
  union all
  (
    select o.id, o.at, o.verb, o.job, o.queue, o.by, o.why, o.detail
    from :schema.action o
    where o.at = any (:created::timestamptz[])
      and o.verb = 'run_again'
      and (o.detail ->> 'run_again_as'::text)::int8 = any (:jobs::int8[])
      and o.job <> all (:jobs::int8[])
  )
  union all
  (
    select o.id, o.at, o.verb, o.job, o.queue, o.by, o.why, o.detail
    from :schema.action o
    where o.at >= :since::timestamptz
      and o.at <= coalesce(:until::timestamptz, :schema.clock())
      and o.job is null
      and o.schedule is null
      and o.verb <> 'forget'
      and (o.queue is null or o.queue = any (:queues::text[]))
      and (
        o.verb not in ('limit_set', 'breaker_trip', 'breaker_reset')
        or exists (
          select
          from pg_catalog.unnest(:waits::text[]) w(waits_for)
          where starts_with(
            w.waits_for || ' ',
            concat_ws(
              ' ',
              split_part(o.verb, '_', 1),
              coalesce(o.detail ->> 'limit'::text, o.detail ->> 'breaker'::text),
              o.detail ->> 'key'::text
            ) || ' '
          )
        )
      )
    order by o.at desc
    limit :limit::int
  )
) a
order by a.at, a.id
