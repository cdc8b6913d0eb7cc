-- Returns the jobs among these that the caps of their types and queues let run. The rest are parked
-- in the line of the first full cap, together with further jobs behind them in their queue. A job
-- that has waited in a line needs a free slot. Any other job joins the end of the line while a job
-- that is not less urgent waits there; the first of the line gets the slot. The caller has locked
-- the rows and holds the stripes of the caps.
-- Locks: further rows, with SKIP LOCKED; indexes job_waits and job_ready.
-- Keeps: M61, at most as many run as the cap says, over all workers.
create or replace function {schema}.caps_admit(p_ids bigint[])
returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_free jsonb;                                  -- slots left, by cap
  v_line jsonb;                                  -- by cap the priority of its first waiting job
  v_passed jsonb := '{}';                        -- by cap the free slots left to its line
  v_parked jsonb := '{}';                        -- the jobs that wait, by cap
  v_late bigint[] := '{}';
  v_id bigint;
  v_priority int;
  v_has_waited boolean;
  v_caps text[];
  v_cap text;
  v_full text;
begin
  with cap as (
    select distinct k.cap
    from {schema}.job_caps(p_ids) c
    cross join lateral (values (c.type_cap), (c.queue_cap)) k(cap)
    where k.cap is not null
  )
  select
    jsonb_object_agg(c.cap, coalesce({schema}.cap_free(c.cap), 100000)),
    jsonb_object_agg(
      c.cap,
      (
        select j.priority
        from {schema}.job j
        where j.waits_for = c.cap
          and j.status = 'waiting'
        order by j.priority desc, j.run_at, j.id
        limit 1
      )
    )
  into v_free, v_line
  from cap c;
  if v_free is null then
    return p_ids;
  end if;
  for v_id, v_priority, v_has_waited, v_caps in
    select
      j.id, j.priority, w.has_waited,
      array_remove(array[c.type_cap, c.queue_cap], null)
    from {schema}.job j
    join {schema}.job_caps(p_ids) c on c.queue = j.queue and c.job_type = j.job_type
    cross join lateral (
      select coalesce(j.waits_for like 'type %' or j.waits_for like 'queue %', false) as has_waited
    ) w
    where j.id = any (p_ids)
    order by j.priority desc, w.has_waited desc, j.run_at, j.id
  loop
    v_full := null;
    foreach v_cap in array v_caps loop
      if (v_free -> v_cap)::int = 0 then
        v_full := v_cap;
      elsif not v_has_waited and (v_line ->> v_cap)::int >= v_priority then
        v_full := v_cap;
        v_passed := v_passed
          || jsonb_build_object(v_cap, coalesce((v_passed -> v_cap)::int, 0) + 1);
      end if;
      exit when v_full is not null;
    end loop;
    if v_full is null then
      foreach v_cap in array v_caps loop
        v_free := v_free || jsonb_build_object(v_cap, (v_free -> v_cap)::int - 1);
      end loop;
    else
      v_late := v_late || v_id;
      v_parked := v_parked
        || jsonb_build_object(v_full, coalesce(v_parked -> v_full, '[]') || to_jsonb(v_id));
    end if;
  end loop;
  for v_cap in select p.key from jsonb_each(v_parked) p order by 1 loop
    perform {schema}.cap_park(
      v_cap,
      array(select p::bigint from jsonb_array_elements(v_parked -> v_cap) p),
      2 * cardinality(v_late) > cardinality(p_ids)
    );
    perform {schema}.cap_release(
      v_cap,
      least((v_free -> v_cap)::int, (v_passed -> v_cap)::int),
      false
    )
    where v_passed ? v_cap;
  end loop;
  return array(select unnest(p_ids) except select unnest(v_late));
end $$;
