-- Claims jobs of one queue ahead of the worker's frontier, with a look behind it: 5 s always, 100 s every 2 s, everything every 5 s, the last two rarer
-- where they take long: each may take a hundredth of one connection over all workers.
create or replace function claim_ahead(p_worker text, p_release text, p_queue text, p_types text[], p_count int)
returns table (id bigint, claims int, expires_at timestamptz, start_recorded boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set search_path from current as $$
#variable_conflict use_column
declare
  v_beginning constant timestamptz := '1970-01-01 00:00:00+00';
  v_begun timestamptz := clock_timestamp();
  v_at frontier;
  v_found smallint[];
  v_save boolean := false;
  v_depth interval := interval '5 seconds';
  v_back_to timestamptz;
  v_asked_at timestamptz;
  v_last_priority smallint;
  v_last_run_at timestamptz;
  v_last_id bigint;
  v_count int := 0;
  v_refusal text;
  v_refused bigint[] := '{}';
  v_known int;
  v_pause interval;
begin
  select f.* into v_at from frontier f where f.worker = p_worker and f.queue = p_queue;
  if v_at.job_types is distinct from p_types then
    v_at := row(p_worker, p_queue, p_types, '{}', '{}', '{}', v_beginning, v_beginning, v_beginning, v_beginning);
  end if;
  select q.look_back_to, q.look_back_asked_at into v_back_to, v_asked_at from queue q where q.name = p_queue and q.look_back_asked_at > v_at.asked_at;
  if found then
    v_save := true;
    v_at.asked_at := v_asked_at;
    for k in 1 .. cardinality(v_at.priorities) loop
      if v_back_to < v_at.run_ats[k] then
        v_at.run_ats[k] := v_back_to;
        v_at.ids[k] := 0;
      end if;
    end loop;
  end if;
  loop
    v_found := array(select u.priority from unknown_priorities(p_queue, v_at.priorities) u(priority));
    exit when cardinality(v_found) = 0;
    v_save := true;
    select array_agg(k.priority order by k.priority desc), array_agg(k.run_at order by k.priority desc), array_agg(k.id order by k.priority desc)
    into v_at.priorities, v_at.run_ats, v_at.ids
    from (select * from unnest(v_at.priorities, v_at.run_ats, v_at.ids)
          union all select priority, v_beginning, 0 from unnest(v_found) priority) k(priority, run_at, id);
  end loop;
  if v_at.look_at_all_due_at <= clock() then
    v_depth := make_interval(secs => 1e10);
  elsif v_at.look_due_at <= clock() then
    v_depth := interval '100 seconds';
  end if;
  loop
    v_known := cardinality(v_refused);
    for id, claims, expires_at, start_recorded, v_last_priority, v_last_run_at, v_last_id, v_refusal in
      select c.id, c.claims, c.expires_at, c.start_recorded, c.priority, c.run_at, c.id, c.refusal
      from job_claim_around(p_worker, p_release, p_types,
        array(select coalesce(t.lease, interval '2 minutes') from unnest(p_types) with ordinality n(name, place)
              left join job_type t on t.name = canonical_type(n.name) order by n.place),
        array(select coalesce(t.on_lost = 'dead' or t.max_attempts = 1, false) from unnest(p_types) with ordinality n(name, place)
              left join job_type t on t.name = canonical_type(n.name) order by n.place),
        array[p_queue], array[p_count - v_count], array[1], array[cardinality(v_at.priorities)], v_at.priorities, v_at.run_ats, v_at.ids,
        array_fill(v_depth, array[cardinality(v_at.priorities)]), p_count - v_count, v_refused, false) c
      order by c.priority desc nulls first, c.run_at, c.id
    loop
      if id is null then
        return;  -- the queue takes no claims now: that nothing came says nothing, and moves no frontier
      elsif v_refusal is null then
        v_count := v_count + 1;
        return next;
      else
        raise warning 'rota.claim: the database refuses job %, which stays as it is for now: %', id, told(v_refusal, 500);
        v_refused := v_refused || id;
      end if;
    end loop;
    exit when v_count >= p_count or cardinality(v_refused) = v_known or v_known >= 1000;
  end loop;
  for k in 1 .. cardinality(v_at.priorities) loop
    if v_count < p_count or v_at.priorities[k] > v_last_priority then
      if v_at.run_ats[k] < clock() then
        v_at.run_ats[k] := clock();
        v_at.ids[k] := 0;
      end if;
    elsif v_at.priorities[k] = v_last_priority then
      -- More than it could take may lie behind the frontier: go on from there, or it would be passed over until the next look.
      v_save := v_save or v_last_run_at < v_at.run_ats[k];
      v_at.run_ats[k] := v_last_run_at;
      v_at.ids[k] := v_last_id;
    end if;
  end loop;
  if v_depth > interval '5 seconds' then
    v_save := true;
    v_pause := (clock_timestamp() - v_begun) * 100
      * (select count(*) from worker w where w.stopped_at is null and w.heartbeat_at > clock() - interval '1 minute');
    v_at.look_due_at := clock() + greatest(interval '2 seconds', v_pause);
    if v_depth > interval '100 seconds' then
      v_at.look_at_all_due_at := clock() + greatest(interval '5 seconds', v_pause);
    end if;
  end if;
  if v_save or v_count >= 50 or v_at.saved_at < clock() - interval '5 seconds' then
    v_at.saved_at := clock();
    insert into frontier select v_at.* on conflict do nothing;
    if not found then
      update frontier f
      set job_types = v_at.job_types, priorities = v_at.priorities, run_ats = v_at.run_ats, ids = v_at.ids, asked_at = v_at.asked_at,
        look_due_at = v_at.look_due_at, look_at_all_due_at = v_at.look_at_all_due_at, saved_at = v_at.saved_at
      where (f.worker, f.queue) = (select free.worker, free.queue from frontier free
        where free.worker = p_worker and free.queue = p_queue for update skip locked);
    end if;
  end if;
end $$;
