-- Returns the names for which jobs wait, of one kind ('limit', 'breaker', 'type', 'queue'; 'limit
-- NAME': the keys of that limit), in order, by one index descent for each. p_after NULL: all.
create or replace function {schema}.waited_for(p_kind text, p_limit int, p_after text default null)
returns setof text
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  with recursive found as (
    (
      select j.waits_for
      from {schema}.job j
      where j.waits_for > coalesce(p_after, p_kind || ' ')
        and j.waits_for < p_kind || '!'  -- the character after a blank
        and j.status <> 'running'
      order by j.waits_for
      limit 1
    )
    union all
    select further.waits_for
    from found f
    cross join lateral (
      select j.waits_for
      from {schema}.job j
      where j.waits_for > f.waits_for
        and j.waits_for < p_kind || '!'
        and j.status <> 'running'
      order by j.waits_for
      limit 1
    ) further
  )
  select f.waits_for
  from found f
  limit p_limit
$$;
