-- Returns the jobs among these that have a rate limit: with its name, their key ('': it has none),
-- their cost (at most the burst), and the room as in waits_for. Key and cost come from meta or
-- payload, as the type's asks_from says; an unusable value counts as '' or 1.
-- Locks: none; indexes job_pkey, job_type_asking and rate_limit_pkey.
create or replace function {schema}.limits_asked(p_ids bigint[])
returns table (id bigint, name text, key text, cost int, room text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
  with limited as materialized (
    select
      d.job_type, t.rate_limit, t.cost, l.burst,
      t.asks_from -> 'limit' as key_from,
      t.asks_from -> 'cost' as cost_from
    from (
      select distinct j.job_type
      from {schema}.job j
      where j.id = any (p_ids)
    ) d
    join {schema}.job_type t
      on t.name = {schema}.canonical_type(d.job_type)
      and t.rate_limit is not null
    left join {schema}.rate_limit l on l.name = t.rate_limit
  )
  select
    j.id, t.rate_limit, k.key,
    least(
      coalesce(
        t.cost,
        case when k.cost::text ~ '^\d+$' then least(greatest(1, k.cost::numeric), 1000000)::int end,
        1
      ),
      t.burst
    ),
    {schema}.room_name('limit'::text, t.rate_limit, k.key)
  from limited t
  join {schema}.job j
    on j.id = any (p_ids)
    and j.job_type = t.job_type
  cross join lateral (
    select
      {schema}.asks_value('limit'::text, t.key_from, j.meta, j.payload) as key,
      case
        when t.cost is null
          then {schema}.asks_value('cost'::text, t.cost_from, j.meta, j.payload)
      end as cost
    offset 0  -- computed once
  ) said
  cross join lateral (select {schema}.asks_key(said.key) as key, said.cost) k
$$;
