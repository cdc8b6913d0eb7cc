-- Makes jobs that wait for a breaker due from p_from on, in this order, a millisecond apart, if
-- they would be due later. p_is_closed: the wait is over. A row that is locked, or that a user's
-- trigger refuses, is left to a sweep. Wakes as many idle workers. Returns how many it moved.
-- Locks: the rows, with SKIP LOCKED; index job_pkey.
create or replace function {schema}.jobs_hasten(
  p_ids bigint[], p_from timestamptz, p_is_closed boolean
)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_queues text[];
  v_moved int := 0;
  v_id bigint;
begin
  begin
    with free as materialized (
      select j.id, array_position(p_ids, j.id) as place
      from {schema}.job j
      where j.id = any (p_ids)
        and j.status || '' in ('queued', 'failed')  -- not by an index of the status
        and j.waits_for like 'breaker %'
      for no key update skip locked
    ),
    moved as (
      update {schema}.job j
      set
        run_at = least(j.run_at, p_from + f.place * interval '1 millisecond'),
        waits_for = case when not p_is_closed then j.waits_for end,
        waits_since = case when not p_is_closed then j.waits_since end,
        updated_at = {schema}.clock()
      from free f
      where j.id = f.id
      returning j.queue
    )
    select array_agg(distinct m.queue), count(*) into v_queues, v_moved
    from moved m;
  exception when others or assert_failure then
    if {schema}.is_no_rows_fault(sqlstate) then
      raise;
    end if;
    if cardinality(p_ids) > 1 then
      foreach v_id in array p_ids loop
        v_moved := v_moved + {schema}.jobs_hasten(array[v_id], p_from, p_is_closed);
      end loop;
    end if;
    return v_moved;
  end;
  perform {schema}.wake_up(v_queues, v_moved);
  return v_moved;
end $$;
