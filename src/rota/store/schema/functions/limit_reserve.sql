-- Reserves starts for claimed jobs that have rate limits: a slot in the future for each, as GCRA
-- gives them. The arguments run parallel: each job with its limit, key, cost and priority, with the
-- longest time that its worker can wait for the slot, and the shortest (in seconds; most_s NULL: as
-- long as reservations reach).
--
-- Jobs with a higher priority come first. Reservations of jobs with a priority above 0 reach a
-- tenth further than those of others. A job for which no slot is near is to be handed back. It is
-- told when to come again: just before its estimated turn. Estimates go on clocks of their own, so
-- that ten thousand jobs that are handed back come again at the pace of the limit. While jobs are
-- on their way like this, one that was not handed back yet gets only what they leave.
--
-- Returns for each job either wait_s, the seconds until its slot, with late_s, how much later it
-- may start, from_at and to_at, to return the reservation with, and the stamp that it rests on; or
-- back_s, the seconds after which it comes again; or a refusal: 'unknown' (there is no such limit),
-- 'cost' (more than the burst) or 'locked' (ask again). now is the time of the statement, which may
-- lie before the lock: a slot in the past is harmless, because the state of the key counts it.
-- Locks: the stripes of the keys, ascending, each for at most 100 ms; indexes rate_limit_pkey,
--   rate_limit_key_pkey and job_pkey. One write for each key whose state changes.
-- Keeps: M62, slots in any window of `per` cost at most `starts`; M61, the urgent come first.
create or replace function {schema}.limit_reserve(
  p_jobs bigint[],
  p_names text[],
  p_keys text[],
  p_costs int[],
  p_priorities int[],
  p_most_s float8[],
  p_least_s float8[]
)
returns table (
  job bigint,
  wait_s float8,
  late_s float8,
  from_at timestamptz,
  to_at timestamptz,
  stamp text,
  back_s float8,
  refusal text
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_one record;
  v_stripe int;
  v_is_free boolean;
  v_limit {schema}.rate_limit;
  v_state {schema}.rate_limit_key;
  v_pace record;
  v_is_changed boolean := false;
  v_is_given boolean;
  -- In microseconds from now.
  v_base bigint;
  v_estimated bigint;
  v_again bigint;
  v_urgent bigint;
  v_from bigint;
  v_slot bigint;
  v_reach bigint;
  v_turn bigint;
begin
  for v_one in
    select
      i.*,
      {schema}.limit_stripe(i.name, i.key) as stripe,
      lag(i.name) over w is distinct from i.name
        or lag(i.key) over w is distinct from i.key as is_first,
      lead(i.name) over w is distinct from i.name
        or lead(i.key) over w is distinct from i.key as is_last,
      coalesce(
        (
          select j.waits_for = concat_ws(' ', 'limit', i.name, nullif(i.key, ''))
          from {schema}.job j
          where j.id = i.job
        ),
        false
      ) as came_again
    from unnest(p_jobs, p_names, p_keys, p_costs, p_priorities, p_most_s, p_least_s)
      with ordinality i(job, name, key, cost, priority, most_s, least_s, n)
    window w as (
      order by {schema}.limit_stripe(i.name, i.key), i.name, i.key, i.priority desc, i.n
    )
    order by stripe, i.name, i.key, i.priority desc, i.n
  loop
    if v_stripe is distinct from v_one.stripe then
      v_stripe := v_one.stripe;
      v_is_free := {schema}.limit_lock(v_stripe);
    end if;
    if v_one.is_first then
      select l.* into v_limit
      from {schema}.rate_limit l
      where l.name = v_one.name;
      select p.* into v_pace
      from {schema}.limit_pace(v_limit.starts, v_limit.per, v_limit.burst) p;
      v_state := {schema}.limit_state(v_one.name, v_one.key);
      v_is_given := v_state.version is null;
      v_state := {schema}.limit_normal(v_state, v_pace.spacing, v_now);
      v_state.name := v_one.name;
      v_state.key := v_one.key;
      v_base := {schema}.limit_base(v_state, v_pace.spacing, v_limit.burst, v_now);
      v_estimated := {schema}.limit_ahead(v_state.estimated_to, v_now);
      v_again := {schema}.limit_ahead(v_state.again_to, v_now);
      v_urgent := {schema}.limit_ahead(v_state.urgent_to, v_now);
      v_is_changed := false;
    end if;
    job := v_one.job;
    refusal := case
      when not v_is_free then 'locked'
      when v_limit.name is null then 'unknown'
      when v_one.cost > v_limit.burst then 'cost'
    end;
    wait_s := null;
    back_s := null;
    if refusal is null then
      v_from := greatest(v_base, (v_one.least_s * 1000000)::bigint);
      v_slot := greatest(
        (v_one.least_s * 1000000)::bigint,
        v_from + v_pace.spacing * (v_one.cost - v_limit.burst)
      );
      v_reach := case
        when v_one.priority > 0 then v_pace.ahead + v_pace.ahead / 10
        when v_urgent > v_pace.ahead
          or not v_one.came_again and greatest(v_estimated, v_again) > v_pace.ahead
          then v_pace.ahead / 5
        else v_pace.ahead
      end;
      v_is_changed := true;
      if v_slot <= least(v_reach, (v_one.most_s * 1000000)::bigint) then
        v_base := v_from + v_one.cost * v_pace.spacing;
        v_is_given := true;
        wait_s := v_slot / 1e6;
        late_s := v_pace.late / 1e6;
        from_at := v_now + v_from * interval '1 microsecond';
        to_at := v_now + v_base * interval '1 microsecond';
        stamp := {schema}.limit_stamp(v_limit, v_state.moves);
      else
        v_turn := least(
          3155760000000000,  -- a hundred years: that a job is due then must be an instant
          greatest(
            v_slot,
            v_urgent,
            case when v_one.priority <= 0 then v_again end,
            case when v_one.priority <= 0 and not v_one.came_again then v_estimated end
          )
        );
        if v_one.priority > 0 then
          v_urgent := v_turn + v_one.cost * v_pace.spacing;
        elsif v_one.came_again then
          v_again := v_turn + v_one.cost * v_pace.spacing;
        else
          v_estimated := v_turn + v_one.cost * v_pace.spacing;
        end if;
        back_s := greatest(
          100000,
          v_turn - case
            when v_slot <= v_reach then 0  -- it is its worker that has no room
            when v_one.priority > 0 then v_pace.ahead + v_pace.ahead / 20
            else v_pace.ahead / 2
          end
        ) / 1e6;
      end if;
    end if;
    return next;
    if v_one.is_last and v_is_changed then
      if v_is_given then
        v_state.tat := v_now + v_base * interval '1 microsecond';
        v_state.spacing := v_pace.spacing;
      end if;
      v_state.estimated_to := {schema}.limit_after(v_estimated, v_now);
      v_state.again_to := {schema}.limit_after(v_again, v_now);
      v_state.urgent_to := {schema}.limit_after(v_urgent, v_now);
      perform {schema}.limit_write(v_state);
    end if;
  end loop;
end $$;
