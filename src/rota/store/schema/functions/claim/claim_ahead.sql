-- Claims jobs of one queue from a position on, around jobs that the database refuses (for claim).
-- Returns their ids, and the position at which the next claim continues.
create or replace function {schema}.claim_ahead(
  p_worker text,
  p_release text,
  p_queue text,
  p_types text[],
  p_count int,
  p_seen jsonb
)
returns table (ids bigint[], seen jsonb)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_back_to timestamptz := (p_seen ->> 'back_to')::timestamptz;
  v_depth interval := {schema}.clock() - v_back_to;
  v_priorities smallint[];
  v_run_ats timestamptz[];
  v_after_ids bigint[];
  v_leases interval[];
  v_records boolean[];
  v_id bigint;
  v_priority smallint;
  v_run_at timestamptz;
  v_refusal text;
  v_last_priority smallint;
  v_last_run_at timestamptz;
  v_last_id bigint;
  v_refused bigint[] := '{}';
  v_known int;
  v_left int;                                    -- jobs of one claim that may not run yet
  v_parked int;                                  -- parked jobs: the next claim passes them
  v_left_here int;
  v_parked_here int;
  v_passes int := 0;
begin
  select
    coalesce(array_agg(k.priority order by k.priority desc), '{}'),
    coalesce(array_agg(k.run_at order by k.priority desc), '{}'),
    coalesce(array_agg(k.id order by k.priority desc), '{}')
  into v_priorities, v_run_ats, v_after_ids
  from (
    select s.key::smallint, (s.value ->> 0)::timestamptz, (s.value ->> 1)::bigint
    from jsonb_each(p_seen -> 'priorities') s
    union all
    select u.priority, '1970-01-01 00:00:00+00', 0
    from {schema}.unknown_priorities(
      p_queue,
      array(select s::smallint from jsonb_object_keys(p_seen -> 'priorities') s)
    ) u(priority)
  ) k(priority, run_at, id);
  select
    array_agg(coalesce(t.lease, {schema}.lease_default()) order by n.place),
    array_agg(
      {schema}.must_record_start(null::smallint, t.max_attempts, t.on_lost)
      order by n.place
    )
  into v_leases, v_records
  from unnest(p_types) with ordinality n(name, place)
  left join {schema}.job_type t on t.name = {schema}.canonical_type(n.name);
  ids := '{}';
  seen := p_seen;
  loop
    v_known := cardinality(v_refused);
    v_left := 0;
    v_parked := 0;
    for v_id, v_priority, v_run_at, v_refusal, v_left_here, v_parked_here in
      select c.id, c.priority, c.run_at, c.refusal, c.attempts, c.claims
      from {schema}.job_claim(
        p_worker, p_release,
        p_types, v_leases, v_records,
        array[p_count - cardinality(ids)], array[p_count - cardinality(ids)],
        array[1], array[0], array[cardinality(v_priorities)],
        array_fill(p_queue, array[cardinality(v_priorities)]),
        v_priorities, v_run_ats, v_after_ids,
        array_fill(v_depth, array[cardinality(v_priorities)]),
        interval '0', false, v_refused, false
      ) c
      where c.queue is not null
      order by c.priority desc nulls first, c.run_at, c.id
    loop
      if v_id is null and v_priority is not null then
        v_left := v_left + v_left_here;
        v_parked := v_parked + v_parked_here;
        continue;
      end if;
      if v_id is null then
        return next;  -- the queue is paused: no job was returned, but there may be due ones
        return;
      end if;
      v_last_priority := v_priority;
      v_last_run_at := v_run_at;
      v_last_id := v_id;
      if v_refusal is null then
        ids := ids || v_id;
      else
        raise warning 'rota.claim: the database refuses job %, which stays as it is for now: %',
          v_id, {schema}.redact(v_refusal, 500);
        v_refused := v_refused || v_id;
      end if;
    end loop;
    v_passes := v_passes + 1;
    exit when cardinality(ids) >= p_count
      or clock_timestamp() > v_began + interval '0.5 seconds'
      or cardinality(v_refused) = v_known and v_parked = 0
      or v_known >= 1000
      or v_passes >= 100;
  end loop;
  -- The position moves to the priority's last job, or to now if the claim was not filled.
  seen := p_seen || jsonb_build_object(
    'priorities',
    (
      select
        coalesce(
          jsonb_object_agg(
            k.priority,
            case
              when v_left = 0 and cardinality(ids) < p_count or k.priority > v_last_priority
                then jsonb_build_array(
                  greatest(k.run_at, {schema}.clock()),
                  case when k.run_at < {schema}.clock() then 0 else k.id end
                )
              when k.priority = v_last_priority
                then jsonb_build_array(v_last_run_at, v_last_id)
              -- Jobs for which this claim looks back may be left behind it.
              when v_back_to < k.run_at then jsonb_build_array(v_back_to, 0)
              else jsonb_build_array(k.run_at, k.id)
            end
          ),
          '{}'
        )
      from unnest(v_priorities, v_run_ats, v_after_ids) k(priority, run_at, id)
    )
  );
  return next;
end $$;
