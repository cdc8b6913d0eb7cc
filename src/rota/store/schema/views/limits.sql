-- Rate limits, with the figures in force. waiting counts the jobs that were put back, up to 10,000 for
-- each of at most 100 keys; next_at is when the next start is free: of a limit with keys, of the one
-- that is furthest ahead of those. keyed is NULL if no code declares the limit.
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
  coalesce(w.keys, 0) as waiting_keys,
  coalesce(w.jobs, 0) as waiting,
  coalesce(w.tat, ({schema}.limit_state(l.name, ''::text)).tat)
    - (l.burst - 1) * p.spacing * interval '1 microsecond' as next_at
from {schema}.rate_limit l
cross join lateral {schema}.limit_pace(l.starts, l.per, l.burst) p
left join (
  select
    split_part(w.waits_for, ' ', 2) as name,
    count(*)::int as keys,
    sum(w.jobs)::int as jobs,
    max(
      ({schema}.limit_state(
        split_part(w.waits_for, ' ', 2),
        substr(w.waits_for, length('limit ' || split_part(w.waits_for, ' ', 2) || ' ') + 1)
      )).tat
    ) as tat
  from {schema}.waits('limit'::text, 100, 10000) w
  group by 1
) w on w.name = l.name;
