-- Makes jobs due that wait for breakers which are closed, in their order, a millisecond apart from
-- p_delay_s on. It closes first what a person opened for all keys, once that time is over. Returns
-- how many jobs; fewer than p_limit: no more are left. A breaker is searched again until it has
-- been closed for five seconds: a worker may hand back jobs that looked before.
-- Locks: rows of breakers, those that are searched with SKIP LOCKED; index breaker_releasing, and a
--   read of the whole table, which is small. Then the jobs, with SKIP LOCKED; index job_waits.
-- Keeps: M63, what waits for a breaker starts soon after it closes, also if its worker is lost.
create or replace function {schema}.breaker_release(p_limit int, p_delay_s float8)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
  v_key text;
  v_count int := 0;
  v_moved int;
  v_queues text[];
begin
  update {schema}.breaker b
  set
    state = 'closed',
    open_until = null,
    opened_at = null,
    closed_at = {schema}.clock(),
    releasing = true,
    forget_at = {schema}.clock() + interval '1 hour',
    changed_at = {schema}.clock()
  where b.key = ''
    and b.state = 'open'
    and b.open_until <= {schema}.clock()
    and exists (
      select
      from {schema}.job_type t
      where t.breaker = b.name
        and t.breaker_has_keys
    );
  for v_name, v_key in
    select b.name, b.key
    from {schema}.breaker b
    where b.releasing
    order by b.name, b.key
    for no key update skip locked
  loop
    with waiting as materialized (
      select j.id
      from {schema}.job j
      where j.waits_for = {schema}.breaker_waits_for(v_name, v_key)
        and j.status in ('queued', 'failed', 'waiting')
      order by j.priority desc, j.run_at, j.id
      limit p_limit - v_count
      for no key update skip locked
    ),
    numbered as materialized (
      select w.id, row_number() over () as place
      from waiting w
    ),
    moved as (
      update {schema}.job j
      set
        run_at = least(
          j.run_at,
          {schema}.clock() + (p_delay_s + n.place / 1000.0) * interval '1 second'
        ),
        waits_for = null,
        waits_since = null,
        updated_at = {schema}.clock()
      from numbered n
      where j.id = n.id
      returning j.queue
    )
    select count(*), array_agg(distinct m.queue)
    into v_moved, v_queues
    from moved m;
    perform {schema}.wake_up(v_queues, v_moved);
    v_count := v_count + v_moved;
    exit when v_count >= p_limit;
    update {schema}.breaker b
    set releasing = false
    where b.name = v_name
      and b.key = v_key
      and b.closed_at < {schema}.clock() - interval '5 seconds';
  end loop;
  return v_count;
end $$;
