-- Returns what jobs wait for, as JSON: laned (jobs that wait for a lane or a cap) and awaiting (for
-- jobs to end); halted: group_key, job, since_s; caps and limits: name (with its kind), jobs,
-- since_s (of the next), ahead_s (until the last is due), and of a limit missing (it has no row);
-- breakers: name, key, open_s, reason. At most p_names of each kind, counted up to p_counted.
-- Locks: none; indexes job_waits, job_put_off and breaker_active.
-- Keeps: M85, with a bound on the rows read.
create or replace function {schema}.waits_now(p_names int, p_counted int)
returns json
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select json_build_object(
    'laned', waiting.laned,
    'awaiting', waiting.awaiting,
    'halted', (
      select coalesce(json_agg(h), '[]')
      from (
        select
          l.group_key,
          l.job,
          extract(epoch from {schema}.clock() - l.since)::float8 as since_s
        from {schema}.lanes_halted('infinity'::timestamptz, p_names) l
      ) h
    ),
    'caps', (
      select coalesce(json_agg(c), '[]')
      from (
        select
          w.waits_for as name,
          w.jobs,
          extract(epoch from {schema}.clock() - w.next_since)::float8 as since_s,
          extract(epoch from w.last_at - {schema}.clock())::float8 as ahead_s
        from unnest(array['type', 'queue']) kind
        cross join lateral {schema}.waits(kind, p_names, p_counted) w
      ) c
    ),
    'limits', (
      select coalesce(json_agg(l), '[]')
      from (
        select
          w.waits_for as name,
          w.jobs,
          extract(epoch from {schema}.clock() - w.next_since)::float8 as since_s,
          extract(epoch from w.last_at - {schema}.clock())::float8 as ahead_s,
          not exists (
            select from {schema}.rate_limit r
            where r.name = split_part(w.waits_for, ' ', 2)
          ) as missing
        from {schema}.waits('limit'::text, p_names, p_counted) w
      ) l
    ),
    'breakers', (
      select coalesce(json_agg(b), '[]')
      from (
        select
          o.name,
          o.key,
          extract(epoch from {schema}.clock() - o.opened_at)::float8 as open_s,
          o.reason
        from {schema}.breaker o
        where o.state <> 'closed'
        order by o.opened_at
        limit p_names
      ) b
    )
  )
  from (
    select
      count(*) filter (where counted.awaits is not true) as laned,
      count(*) filter (where counted.awaits) as awaiting
    from (
      select j.waits_for like 'job %' as awaits
      from {schema}.job j
      where j.status = 'waiting'
      limit p_counted
    ) counted
  ) waiting
$$;
