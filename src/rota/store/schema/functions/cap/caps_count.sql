-- Makes running jobs that began before their type or queue had a cap count in it. Returns how many.
-- Locks: their rows, with SKIP LOCKED; index job_lease.
-- Keeps: a new cap holds at once, and exactly.
create or replace function {schema}.caps_count()
returns int
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
as $$
  with uncounted as materialized (
    select j.id
    from {schema}.job j
    where (
        exists (select from {schema}.queue q where q.max_running is not null)
        or exists (select from {schema}.job_type t where t.max_running is not null)
      )
      and j.status = 'running'
      and j.capped is null
      and (
        exists (
          select from {schema}.queue q
          where q.name = j.queue
            and q.max_running is not null
        )
        or exists (
          select from {schema}.job_type t
          where t.name = {schema}.canonical_type(j.job_type)
            and t.max_running is not null
        )
      )
    for no key update skip locked
  ),
  counted as (
    update {schema}.job j
    set capped = true, waits_for = null
    where j.id = any (array(select u.id from uncounted u))
    returning j.id
  )
  select count(*)::int
  from counted
$$;
