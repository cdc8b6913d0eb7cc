-- Rate limits, with the figures in force. waiting and waiting_keys count up to 10,000 jobs that
-- were handed back, and their keys. next_at is when the next start is free; NULL: now, or the limit
-- has keys. keyed is NULL if no code declares the limit.
create or replace view {schema}.limits as
select
  l.name,
  l.starts,
  l.per,
  l.burst,
  (l.declared ->> 'keyed')::boolean as keyed,
  l.changed_at,
  l.changed_by,
  l.changed_why,
  w.keys as waiting_keys,
  w.jobs as waiting,
  (
    select {schema}.limit_after(
      {schema}.limit_base(
        {schema}.limit_normal(k, p.spacing, {schema}.clock()),
        p.spacing, l.burst, {schema}.clock()
      ) - (l.burst - 1) * p.spacing,
      {schema}.clock()
    )
    from {schema}.rate_limit_key k
    where k.name = l.name
      and k.key = ''
    order by k.name desc, k.key desc, k.version desc
    limit 1
  ) as next_at
from {schema}.rate_limit l
cross join lateral {schema}.limit_pace(l.starts, l.per, l.burst) p
cross join lateral (
  select
    count(*)::int as jobs,
    count(distinct counted.waits_for)::int as keys
  from (
    select j.waits_for
    from {schema}.job j
    where j.waits_for >= 'limit ' || l.name
      and j.waits_for < 'limit ' || l.name || '!'  -- the character after a blank
      and j.status <> 'running'
    limit 10000
  ) counted
) w;
