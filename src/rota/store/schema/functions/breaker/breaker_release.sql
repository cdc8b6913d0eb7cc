-- Makes jobs due that wait for these rooms, as in waits_for, if their breakers are closed: 1,000,
-- in their order. First it closes breakers that a person opened for all keys, once that time is
-- over. Returns how many jobs. A sweep finds locked rows, and jobs of claims that looked before; of
-- rows that a user's trigger refuses, it tries a thousand.
-- Locks: breakers, then jobs, SKIP LOCKED; indexes breaker_active, breaker_pkey and job_waits.
-- Keeps: M63, what waits for a breaker starts soon after it closes.
create or replace function {schema}.breaker_release(p_rooms text[])
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
begin
  update {schema}.breaker b
  set
    state = 'closed',
    open_until = null,
    opened_at = null,
    closed_at = {schema}.clock(),
    forget_at = {schema}.clock() + interval '1 hour',
    changed_at = {schema}.clock()
  where b.key = ''
    and b.name in (
      select o.name
      from {schema}.breaker o
      where o.key = ''
        and o.state = 'open'
        and o.open_until <= {schema}.clock()
        and exists (
          select
          from {schema}.job_type t
          where t.breaker = o.name
            and t.breaker_has_keys
        )
      for no key update skip locked
    );
  return {schema}.jobs_hasten(
    array(
      select line.id
      from (
        select r.room, split_part(r.room, ' ', 2) as name
        from unnest(p_rooms) r(room)
      ) w
      cross join lateral (
        select j.id
        from {schema}.job j
        where j.waits_for = w.room
          and j.status in ('queued', 'failed')
        order by j.priority desc, j.run_at, j.id
        limit 1000
      ) line
      where not exists (
        select from {schema}.breaker_state(w.name, substr(w.room, length(w.name) + 10))
      )
      limit 1000
    ),
    {schema}.clock(),
    true
  );
end $$;
