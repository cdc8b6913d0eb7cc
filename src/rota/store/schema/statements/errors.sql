-- Read the errors of a period, the latest first: attempts that failed with the same class, response
-- and first line of the message, in which addresses and words with a digit become ellipses. A text
-- in quotes stays: it is often what is wrong, such as an argument's name.
-- Parameters: since timestamptz; since_ago interval (instead of since); job_type text (NULL: all);
--   counted int (most attempts of a class, the newest, and a thirtieth of all that are read);
--   limit int
-- Rows: job_type text; error_type text; response_code int; pattern text; attempts int8; jobs int8
--   (different ones); dead int8 (that wait for a person); first_at timestamptz;
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
patterned as (
  select
    c.job, c.job_type, c.error_type, c.response_code, c.release, c.finished_at,
    regexp_replace(
      split_part(c.message, e'\n', 1), e'\\S*@\\S+|[\\w.-]*\\d[\\w.-]*', '…', 'g'
    ) as pattern,
    exists (
      select from :schema.job j
      where j.id = c.job
        and j.status = 'dead'
    ) as is_dead
  from of_class c
  where c.nth <= :counted::int
),
found as (
  select
    p.job_type, p.error_type, p.response_code, p.pattern,
    count(*) as attempts,
    count(distinct p.job) as jobs,
    count(distinct p.job) filter (where p.is_dead) as dead,
    min(p.finished_at) as first_at,
    max(p.finished_at) as last_at,
    (array_agg(p.job order by p.finished_at desc))[1] as last_job,
    array_agg(p.release) as releases
  from patterned p
  group by p.job_type, p.error_type, p.response_code, p.pattern
  order by last_at desc
  limit :limit::int
)
select
  f.job_type, f.error_type, f.response_code, f.pattern,
  f.attempts, f.jobs, f.dead,
  f.first_at, f.last_at, f.last_job,
  (
    select coalesce(json_object_agg(r.name, r.attempts order by r.attempts desc), '{}')::text
    from (
      select u.name, count(*) as attempts
      from pg_catalog.unnest(f.releases) u(name)
      where u.name is not null
      group by u.name
    ) r
  ) as releases
from found f
order by f.last_at desc
