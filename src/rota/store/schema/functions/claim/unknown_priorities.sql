-- Returns the priorities in use in a queue that a worker does not know, by one index descent for
-- each gap between known priorities and for each priority that it finds.
create or replace function {schema}.unknown_priorities(p_queue text, p_known smallint[])
returns setof smallint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
  return query
  select found.priority
  from (
    select
      k.priority as low,
      lead(k.priority, 1, 101::smallint) over (order by k.priority) as high
    from unnest(p_known || (-101)::smallint) k(priority)
  ) gap
  cross join lateral (
    with recursive used as (
      (
        select b.priority
        from {schema}.job b
        where b.queue = p_queue
          and b.priority > gap.low
          and b.priority < gap.high
          and b.status in ('queued', 'failed')
        order by b.priority desc
        limit 1
      )
      union all
      select less.priority
      from used u
      cross join lateral (
        select b.priority
        from {schema}.job b
        where b.queue = p_queue
          and b.priority > gap.low
          and b.priority < u.priority
          and b.status in ('queued', 'failed')
        order by b.priority desc
        limit 1
      ) less
    )
    select u.priority
    from used u
  ) found;
end $$;
