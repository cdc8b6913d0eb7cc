-- Finds lanes with jobs that hold a place or wait for a place, by group key: p_group_key, or lanes
-- that a dead job halts, or all after p_after. p_limit NULL: all of these. Of a lane it counts up
-- to 10,000 jobs and lists up to 100 that hold a place.
--   capacity    how many may run at once when the next job begins or, if no job waits, when the
--               last job began
--   holders     jobs that hold a place: id, job_type, status, and since when they have that status
--   waiting     jobs of the lane without a place, due or to come
--   oldest_due  the earliest run_at of the due jobs without a place
--   halted_by   the dead job that halts the lane; NULL: none does
-- Locks: none; index job_lane, one descent from lane to lane, and job_waits.
-- Keeps: M60, what holds a lane is visible; M85, with a bound on the rows read.
create or replace function {schema}.groups_find(
  p_group_key text default null,
  p_halted boolean default false,
  p_after text default null,
  p_limit int default 100
)
returns table (
  group_key text,
  capacity smallint,
  held int,
  holders jsonb,
  waiting int,
  oldest_due timestamptz,
  halted_by bigint
)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_halted text[];
begin
  if p_halted then
    v_halted := array(
      select distinct d.group_key
      from {schema}.job d
      where d.waits_for = 'person'
        and d.status <> 'running'
        and d.in_lane
        and (p_group_key is null or d.group_key = p_group_key)
        and (p_after is null or d.group_key > p_after)
      order by d.group_key
      limit p_limit
    );
  end if;
  return query
  with recursive walked as (
    (
      select j.group_key
      from {schema}.job j
      where j.group_key > coalesce(p_after, '')
        and j.group_key is not null
        and (j.in_lane or j.status in ('queued', 'failed', 'waiting'))
        and p_group_key is null
        and v_halted is null
      order by j.group_key
      limit 1
    )
    union all
    select further.group_key
    from walked w
    cross join lateral (
      select j.group_key
      from {schema}.job j
      where j.group_key > w.group_key
        and j.group_key is not null
        and (j.in_lane or j.status in ('queued', 'failed', 'waiting'))
      order by j.group_key
      limit 1
    ) further
  )
  select
    lane.group_key,
    coalesce(next.group_capacity, held.group_capacity, 1::smallint),
    held.jobs::int,
    held.holders,
    waiting.jobs::int,
    waiting.oldest_due,
    held.halted_by
  from (
    select w.group_key from walked w
    union all
    select h.group_key from unnest(v_halted) h(group_key)
    union all
    select p_group_key where v_halted is null and p_group_key is not null
  ) lane
  cross join lateral (
    select
      count(*) as jobs,
      max(h.group_capacity) as group_capacity,
      min(h.id) filter (where h.status = 'dead') as halted_by,
      coalesce(
        jsonb_agg(
          jsonb_build_object(
            'id', h.id,
            'job_type', h.job_type,
            'status', h.status,
            'since', case h.status
              when 'running' then h.started_at
              when 'dead' then h.failed_at
              else h.updated_at
            end
          )
          order by h.id
        ) filter (where h.place <= 100),
        '[]'
      ) as holders
    from (
      select b.*, row_number() over (order by b.id) as place
      from (
        select
          j.id, j.job_type, j.status, j.group_capacity, j.started_at, j.failed_at, j.updated_at
        from {schema}.job j
        where j.group_key = lane.group_key
          and j.in_lane
          and j.group_key is not null
        limit 10000
      ) b
    ) h
  ) held
  cross join lateral (
    select
      count(*) as jobs,
      min(n.run_at) filter (where n.run_at <= {schema}.clock()) as oldest_due
    from (
      select j.run_at
      from {schema}.job j
      where j.group_key = lane.group_key
        and j.in_lane is null
        and j.status in ('queued', 'failed', 'waiting')
      limit 10000
    ) n
  ) waiting
  left join lateral (
    select coalesce(j.group_capacity, 1::smallint) as group_capacity
    from {schema}.job j
    where j.group_key = lane.group_key
      and j.in_lane is null
      and j.status in ('queued', 'failed', 'waiting')
    order by j.priority desc, j.run_at, j.id
    limit 1
  ) next on true
  where held.jobs > 0 or waiting.jobs > 0
  limit p_limit;
end $$;
