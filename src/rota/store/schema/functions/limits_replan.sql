-- Brings jobs forward that were handed back for a limit which now has slots to give: it was raised,
-- or jobs before them are gone. Of each key it plans the next p_most jobs anew, at the pace of the
-- limit and in their order. p_name: only this limit, and at once; NULL: all whose slots are not
-- taken. It reads a thousand keys, those behind p_after (NULL: the first). Returns for how many of
-- them jobs wait, how many jobs it moved, and the last key if there may be more behind it.
-- Locks: the stripes of the keys, without waiting; the rows of the jobs, with SKIP LOCKED; index
--   job_waits.
-- Keeps: M62, a slot is not left unused while a job waits for it.
create or replace function {schema}.limits_replan(p_name text, p_most int, p_after text)
returns table (keys int, moved int, next_after text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := {schema}.clock();
  v_waits_for text;
  v_key text;
  v_limit {schema}.rate_limit;
  v_state {schema}.rate_limit_key;
  v_pace record;
  v_slot bigint;
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
    next_after := case when keys >= 1000 then v_waits_for end;
    select l.* into v_limit
    from {schema}.rate_limit l
    where l.name = split_part(v_waits_for, ' ', 2);
    continue when not found;
    select p.* into v_pace
    from {schema}.limit_pace(v_limit.starts, v_limit.per, v_limit.burst) p;
    v_key := substr(v_waits_for, length('limit ' || v_limit.name || ' ') + 1);
    v_slot := {schema}.limit_base(
      {schema}.limit_normal(
        {schema}.limit_state(v_limit.name, v_key), v_pace.spacing, v_now
      ),
      v_pace.spacing, v_limit.burst, v_now
    ) - v_pace.spacing * (v_limit.burst - 1);
    continue when p_name is null and v_slot > v_pace.ahead / 4
      or not pg_try_advisory_xact_lock(
        1919906914, {schema}.limit_stripe(v_limit.name, v_key)
      );
    v_state := {schema}.limit_normal(
      {schema}.limit_state(v_limit.name, v_key), v_pace.spacing, v_now
    );
    v_state.name := v_limit.name;
    v_state.key := v_key;
    v_slot := greatest(
      0,
      {schema}.limit_base(v_state, v_pace.spacing, v_limit.burst, v_now)
        - v_pace.spacing * (v_limit.burst - 1)
    );
    with waiting as materialized (
      select
        w.*,
        v_now + greatest(
          0,
          v_slot + (row_number() over () - 1) * v_pace.spacing - v_pace.ahead / 2
        ) * interval '1 microsecond' as planned_at
      from (
        select j.id, j.run_at
        from {schema}.job j
        where j.waits_for = v_waits_for
          and j.status <> 'running'
          and j.status = 'queued'
        order by j.priority desc, j.run_at, j.id
        limit p_most
      ) w
    ),
    late as materialized (  -- only these are locked: a paused queue may keep thousands waiting
      select j.id, w.planned_at
      from waiting w
      join {schema}.job j on j.id = w.id
      where w.planned_at + v_pace.ahead / 10 * interval '1 microsecond' < j.run_at
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
    if v_moved > 0 and v_waiting < p_most then  -- nobody else is further ahead
      v_state.estimated_to := v_now + (v_slot + v_waiting * v_pace.spacing)
        * interval '1 microsecond';
      v_state.again_to := null;
      v_state.urgent_to := null;
      perform {schema}.limit_write(v_state);
    end if;
  end loop;
  return next;
end $$;
