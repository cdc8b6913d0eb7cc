-- Returns what jobs wait for, of one kind (as waited_for): how many wait for each name, counted up
-- to p_counted, which of them is the next and since when it waits, and when the last is due. Names
-- whose last job is due until p_last_after are left out, and their jobs are not counted.
create or replace function {schema}.waits(
  p_kind text,
  p_limit int,
  p_counted int,
  p_last_after timestamptz default '-infinity'
)
returns table (
  waits_for text, jobs int, next_job bigint, next_since timestamptz, last_at timestamptz
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select w.waits_for, counted.jobs, next.id, next.waits_since, last.run_at
  from {schema}.waited_for(p_kind, p_limit) w(waits_for)
  cross join lateral (
    select j.run_at
    from {schema}.job j
    where j.waits_for = w.waits_for
      and j.status <> 'running'
    order by j.priority, j.run_at desc, j.id desc
    limit 1
  ) last
  cross join lateral (
    select count(*)::int as jobs
    from (
      select from {schema}.job j
      where j.waits_for = w.waits_for
        and j.status <> 'running'
        and last.run_at > p_last_after
      limit p_counted
    ) c
  ) counted
  cross join lateral (
    select j.id, j.waits_since
    from {schema}.job j
    where j.waits_for = w.waits_for
      and j.status <> 'running'
    order by j.priority desc, j.run_at, j.id
    limit 1
  ) next
  where last.run_at > p_last_after
$$;
