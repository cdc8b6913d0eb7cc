-- Breakers: a row for each key that is open or has failures that count, and for each declared
-- breaker without such a key, as closed. `failures` are the failures that count while it is closed;
-- waiting counts up to 10,000 jobs. key is NULL if the breaker has no keys, or for all of its keys.
create or replace view {schema}.breakers as
select
  b.name,
  nullif(b.key, '') as key,
  b.state,
  b.failures,
  b.openings,
  b.open_until,
  b.opened_at,
  b.trial_job,
  (
    select count(*)::int
    from (
      select
      from {schema}.job j
      where j.waits_for = {schema}.room_name('breaker'::text, b.name, b.key)
        and j.status in ('queued', 'failed', 'waiting')
      limit 10000
    ) counted
  ) as waiting,
  b.reason,
  b.changed_at,
  b.changed_by
from (
  select
    k.name, k.key, k.state, cardinality(k.failed_at) as failures, k.openings, k.open_until,
    k.opened_at, k.trial_job, k.reason, k.changed_at, k.changed_by
  from {schema}.breaker k
  where k.state <> 'closed'
    or k.failed_at <> '{}' and k.forget_at > {schema}.clock()
  union all
  select distinct
    t.breaker, ''::text, 'closed'::text, 0, 0, null::timestamptz,
    null::timestamptz, null::bigint, null::text, null::timestamptz, null::text
  from {schema}.job_type t
  where t.breaker is not null
    and not exists (
      select
      from {schema}.breaker k
      where k.name = t.breaker
        and (k.state <> 'closed' or k.failed_at <> '{}' and k.forget_at > {schema}.clock())
    )
) b;
