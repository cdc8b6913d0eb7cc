-- Brings jobs forward that were put off for a limit which now has slots to give: it was raised, or
-- earlier jobs are gone. Of each key it plans the next p_most jobs anew, at the limit's pace, in
-- their order. p_name: only this limit, at once; NULL: all with untaken slots. It reads up to a
-- thousand keys behind p_after (NULL: the first), until it has moved p_most jobs. Returns for how
-- many keys jobs wait, how many jobs it moved, and the last key if there may be more behind it.
-- Locks: the jobs, SKIP LOCKED; the stripes of keys whose jobs move, no wait; index job_waits.
-- Keeps: M62, a slot is not left unused while a job waits for it.
create or replace function {schema}.limits_replan(p_name text, p_most int, p_after text)
returns table (keys int, moved int, next_after text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_now timestamptz;
  v_paused text[] := {schema}.paused_queues(array(select q.name from {schema}.queue q));
  v_waits_for text;
  v_name text;
  v_key text;
  v_limit record;                                -- span: turns are exact to a fraction of it
  v_state {schema}.rate_limit_key;
  v_waiting int;
  v_moved int;
begin
  keys := 0;
  moved := 0;
  for v_waits_for in
    select w.waits_for
    from {schema}.waited_for(coalesce('limit ' || p_name, 'limit'), 1000, p_after) w(waits_for)
    union all
    select 'limit ' || p_name
    where p_name is not null
  loop
    keys := keys + 1;
    v_now := {schema}.moment();
    next_after := case when keys >= 1000 then v_waits_for end;
    v_name := split_part(v_waits_for, ' ', 2);
    v_key := substr(v_waits_for, length(v_name) + 8);
    select
      n.*, n.base - n.spacing * (n.burst - 1) as slot, least(10000000, 500 * n.spacing) as span
    into v_limit
    from {schema}.limit_now(v_name, v_key, v_now) n;
    continue when not found or p_name is null and v_limit.slot > v_limit.span / 4;
    with waiting as materialized (
      select
        w.*,
        v_now + interval '1 microsecond' * {schema}.limit_turn(
          v_limit.slot + (row_number() over () - 1) * v_limit.spacing, v_limit.ahead, v_now
        ) as planned_at
      from (
        select n.id, n.run_at
        from (
          select j.id, j.run_at, j.queue
          from {schema}.job j
          where j.waits_for = v_waits_for
            and j.status <> 'running'
            and j.status = 'queued'
          order by j.priority desc, j.run_at, j.id
          limit 10 * p_most
        ) n
        -- Jobs that nobody takes when they are due have no turn.
        where n.queue <> all (v_paused)
          and n.run_at > v_now - interval '10 seconds'
        limit p_most
      ) w
    ),
    late as materialized (  -- only these are locked: a paused queue may keep thousands waiting
      select j.id, w.planned_at
      from waiting w
      join {schema}.job j on j.id = w.id
      where w.planned_at + v_limit.span / 10 * interval '1 microsecond' < j.run_at
        and j.waits_for = v_waits_for
        and j.status = 'queued'
      for no key update of j skip locked
    ),
    planned as (
      update {schema}.job j
      set run_at = l.planned_at
      from late l
      where j.id = l.id
      returning j.id
    )
    select count(*), (select count(*) from planned) into v_waiting, v_moved
    from waiting;
    moved := moved + v_moved;
    if v_moved > 0 and {schema}.stripes_lock(array[v_waits_for], 0) = '{}' then
      select (n.state).* into v_state
      from {schema}.limit_now(v_name, v_key, v_now) n;
      v_state.urgent_to := null;
      if v_waiting < p_most then  -- nobody else is further ahead
        v_state.estimated_to := v_now + (v_limit.slot + v_waiting * v_limit.spacing)
          * interval '1 microsecond';
        v_state.again_to := null;
      end if;
      perform {schema}.limit_write(v_state);
    end if;
    if moved >= p_most then  -- stripes are not held for long
      next_after := v_waits_for;
      exit;
    end if;
  end loop;
  return next;
end $$;
