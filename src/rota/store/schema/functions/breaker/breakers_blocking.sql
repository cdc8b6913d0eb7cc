-- Returns the jobs among these that their breakers do not simply let start: with the breaker and
-- key that hold them up, the room as in waits_for, and the state as in breaker_state. The key comes
-- from the job's row as in limits_asked. The key '' of a breaker with keys: a person opened all
-- keys; it holds up none once that time is over.
-- Locks: none; indexes job_pkey, job_type_asking, breaker_active and breaker_pkey.
create or replace function {schema}.breakers_blocking(p_ids bigint[])
returns table (id bigint, name text, key text, room text, state text, wait_s float8)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = on
set enable_mergejoin = off set jit = off
as $$
  with asking as materialized (
    select d.job_type, t.breaker, t.asks_from -> 'breaker' as key_from
    from (
      select distinct j.job_type
      from {schema}.job j
      where j.id = any (p_ids)
    ) d
    join {schema}.job_type t
      on t.name = {schema}.canonical_type(d.job_type)
      and t.breaker is not null
    cross join lateral (
      select
      from {schema}.breaker b
      where b.name = t.breaker
        and b.state <> 'closed'
      limit 1
    ) not_closed
  ),
  asked as materialized (
    select j.id, a.breaker as name, {schema}.asks_key(said.key) as key
    from {schema}.job j
    join asking a on a.job_type = j.job_type
    cross join lateral (
      select {schema}.asks_value('breaker'::text, a.key_from, j.meta, j.payload) as key
      offset 0  -- computed once
    ) said
    where j.id = any (p_ids)
      and exists (select from asking)
  ),
  place as materialized (
    select distinct on (a.name, a.key) a.name, a.key, held.key as blocked_by, s.state, s.wait_s
    from (select distinct name, key from asked) a
    cross join lateral (values (''), (a.key)) held(key)
    cross join lateral {schema}.breaker_state(a.name, held.key) s
    where held.key = a.key
      or s.state = 'open'
    order by a.name, a.key, held.key = a.key
  )
  select
    a.id, p.name, p.blocked_by,
    {schema}.room_name('breaker'::text, p.name, p.blocked_by), p.state, p.wait_s
  from asked a
  join place p on p.name = a.name and p.key = a.key
$$;
