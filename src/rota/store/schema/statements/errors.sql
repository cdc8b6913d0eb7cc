-- Read the errors of a period, that which was met last first: attempts that failed with the same
-- class, response and message, but for what differs from one job to the next: of the message's
-- first line an address and a word with a digit become an ellipsis. A text in quotes stays: it is
-- as often what is wrong, such as the name of an argument.
-- Parameters: since timestamptz; since_ago interval (instead of since); job_type text (NULL: all);
--   counted int (most attempts of a class, the newest, and a thirtieth of all that are read);
--   limit int
-- Rows: job_type text; error_type text; response_code int; pattern text; attempts int8;
--   jobs int8 (different ones); dead int8 (of those, that wait for a person); first_at timestamptz;
--   last_at timestamptz; last_job int8; releases text (JSON: attempts by release).
-- Locks: none; indexes attempt_finished and job_pkey.
-- Keeps: M85, with a bound on the rows read.
with newest as (
  select
    a.job, a.job_type, a.error_type, a.response_code, a.release, a.finished_at,
    left(a.message, 200) as message
  from :schema.attempt a
  where a.finished_at >= coalesce(:since::timestamptz, :schema.clock() - :since_ago::interval)
    and a.outcome in ('failed', 'dead')
    and (:job_type::text is null or a.job_type = :job_type::text)
  order by a.finished_at desc
  limit :counted::int * 30
),
of_class as (
  select
    n.*,
    row_number() over (
      partition by n.job_type, n.error_type, n.response_code
      order by n.finished_at desc
    ) as nth
  from newest n
),
patterned as materialized (
  select
    c.job, c.job_type, c.error_type, c.response_code, c.release, c.finished_at,
    regexp_replace(
      split_part(c.message, e'\n', 1), e'\\S*@\\S+|[\\w.-]*\\d[\\w.-]*', '…', 'g'
    ) as pattern
  from of_class c
  where c.nth <= :counted::int
),
failed as materialized (
  select
    n.*,
    row(n.job_type, n.error_type, n.response_code, n.pattern)::text as error,
    exists (
      select from :schema.job j
      where j.id = n.job
        and j.status = 'dead'
    ) as is_dead
  from patterned n
),
found as (
  select
    f.error, f.job_type, f.error_type, f.response_code, f.pattern,
    count(*) as attempts,
    count(distinct f.job) as jobs,
    count(distinct f.job) filter (where f.is_dead) as dead,
    min(f.finished_at) as first_at,
    max(f.finished_at) as last_at,
    (array_agg(f.job order by f.finished_at desc))[1] as last_job
  from failed f
  group by f.error, f.job_type, f.error_type, f.response_code, f.pattern
  order by last_at desc
  limit :limit::int
),
released as (
  select f.error, f.release, count(*) as attempts
  from failed f
  where f.release is not null
  group by f.error, f.release
)
select
  f.job_type, f.error_type, f.response_code, f.pattern,
  f.attempts, f.jobs, f.dead,
  f.first_at, f.last_at, f.last_job,
  (
    select coalesce(json_object_agg(r.release, r.attempts order by r.attempts desc), '{}')::text
    from released r
    where r.error = f.error
  ) as releases
from found f
order by f.last_at desc
