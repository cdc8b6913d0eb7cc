-- Makes waiting jobs claimable again, due from now: ahead of every worker's frontier, and behind
-- the jobs of their queue. p_of_lane: only jobs that wait for their lane, which take a place of it;
-- otherwise only jobs that wait for something else. p_keep_line: jobs of a cap keep their place in
-- its line; otherwise they return to it as newcomers. A row that is locked, or that a user's
-- trigger refuses, is left to a sweep. Wakes as many idle workers. Returns how many it released.
-- Locks: the rows, with SKIP LOCKED; index job_pkey.
create or replace function {schema}.jobs_release(
  p_ids bigint[], p_of_lane boolean, p_keep_line boolean
)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_queues text[];
  v_released int := 0;
  v_id bigint;
begin
  if p_ids = '{}' then
    return 0;
  end if;
  begin
    with free as materialized (
      select j.ctid
      from {schema}.job j
      where j.id = any (p_ids)
        and j.status || '' = 'waiting'  -- not by an index of the status
        and (j.waits_for is null) = p_of_lane
      order by j.id
      for no key update skip locked
    ),
    released as (
      update {schema}.job j
      set
        status = 'queued',
        in_lane = case when p_of_lane then true else j.in_lane end,
        waits_for = case when p_keep_line then j.waits_for end,
        waits_since = case when p_keep_line then j.waits_since end,
        run_at = {schema}.clock(),
        updated_at = {schema}.clock()
      where j.ctid = any (array(select f.ctid from free f))
      returning j.queue
    )
    select array_agg(distinct r.queue), count(*) into v_queues, v_released
    from released r;
  exception when others or assert_failure then
    if {schema}.is_no_rows_fault(sqlstate) then
      raise;
    end if;
    if cardinality(p_ids) > 1 then
      foreach v_id in array p_ids loop
        v_released := v_released + {schema}.jobs_release(array[v_id], p_of_lane, p_keep_line);
      end loop;
    end if;
    return v_released;
  end;
  perform {schema}.wake_up(v_queues, v_released);
  return v_released;
end $$;
