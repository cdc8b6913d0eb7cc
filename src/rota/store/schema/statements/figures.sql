-- Read what ended in the last hours, latest hour first: what the roll-up has counted, and what
-- ended since, both of one snapshot.
-- Parameters: hours int (with the current one); job_type text (NULL: all); queue text (NULL: all)
-- Rows: complete_to timestamptz (the figures are complete up to it); job_type text;
--   hour timestamptz; succeeded int8; succeeded_late int8; retried int8; dead int8;
--   cancelled int8; releases text; waited text; ran text. One or two for each hour, type and queue;
--   if nothing ended, one whose job_type and further columns are NULL. JSON: failed attempts by
--   release, and two times by bucket.
-- Locks: none; index stat_hour_pkey; of history the blocks since the last roll-up, index
--   attempt_finished.
-- Keeps: M85, with a bound on the rows read: those of the hours asked for, and what ended since the
--   last roll-up, not all jobs.
with asked as materialized (
  select
    date_trunc('hour', :schema.clock() - :hours::int::float8 * interval '1 hour', 'UTC')
      + interval '1 hour' as since
),
tail as materialized (
  select
    :schema.figures_tail(a.since) as since
  from asked a
),
counted as (
  select
    s.hour, s.job_type, s.queue,
    s.succeeded, s.succeeded_late, s.retried, s.dead, s.cancelled,
    s.failed_by_release, s.waited, s.ran
  from :schema.stat_hour s
  where s.hour >= (select a.since from asked a)
    and s.hour < coalesce((select t.since from tail t), 'infinity')
  union all
  select
    u.hour, u.job_type, u.queue,
    u.succeeded, u.succeeded_late, u.retried, u.dead, u.cancelled,
    u.failed_by_release, u.waited, u.ran
  from tail t
  cross join lateral :schema.figures_unfolded(t.since) u
  where t.since is not null
)
select
  case
    when (select t.since from tail t) is null
      then (select r.complete_to from :schema.stat_rollup r)
    else :schema.clock()
  end as complete_to,
  c.job_type,
  c.hour,
  c.succeeded, c.succeeded_late,
  c.retried, c.dead, c.cancelled,
  c.failed_by_release::text as releases,
  c.waited::text as waited,
  c.ran::text as ran
from asked
left join counted c
  on (:job_type::text is null or c.job_type = :job_type::text)
  and (:queue::text is null or c.queue = :queue::text)
order by c.hour desc, c.job_type
