-- What job_claim does, for when that was refused: a trigger or a constraint of the user's will not have one of the rows. Leaves out p_refused, and takes the
-- others together while nothing is refused, else in halves, down to the row, and in larger parts again. A row that is refused comes back as it is, with
-- what the database says; of its other columns only id, queue, priority and run_at mean anything. p_alone: nothing else is in this transaction.
create or replace function job_claim_around(
  p_worker text, p_release text, p_types text[], p_leases interval[], p_records boolean[], p_queues text[], p_slots int[], p_lo int[], p_hi int[],
  p_priorities smallint[], p_after_run_at timestamptz[], p_after_id bigint[], p_depths interval[], p_limit int, p_refused bigint[], p_alone boolean)
returns table (id bigint, origin_id bigint, queue text, job_type text, payload text, payload_version smallint, priority smallint, run_at timestamptz,
  expires_at timestamptz, attempts int, max_attempts int, claims int, idempotency_key text, meta text, created_at timestamptz, start_recorded boolean,
  losses smallint, suspected boolean, schedule text, scheduled_for timestamptz, refusal text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan
set search_path from current as $$
#variable_conflict use_column
declare
  v_paused text[] := case
    when exists (select from site s
                 where s.copied is not null or s.paused_at is not null and (s.paused_until is null or s.paused_until > clock())) then p_queues
    else array(select p.name from queue p
               where p.name = any (p_queues) and p.paused_at is not null and (p.paused_until is null or p.paused_until > clock())) end;
  v_ids bigint[] := array(
    select picked.id
    from unnest(p_queues, p_slots, p_lo, p_hi) q(queue, slots, lo, hi)
    cross join lateral (
      select branch.id
      from generate_series(q.lo, q.hi) k
      cross join lateral (
        select b.id from job b
        where b.queue = q.queue and b.priority = p_priorities[k] and b.status in ('queued', 'failed')
          and (b.run_at, b.id) > (least(p_after_run_at[k], clock() - p_depths[k]),
                                  case when p_after_run_at[k] <= clock() - p_depths[k] then p_after_id[k] else 0 end)
          and b.run_at <= clock() and b.job_type = any (p_types)
          and (b.misfits is null or not p_release = any (b.misfits) or b.run_at < clock() - interval '1 hour')
          and b.id <> all (p_refused)
        order by b.run_at, b.id limit q.slots for update skip locked) branch
      limit q.slots) picked
    where q.queue <> all (v_paused)
    limit p_limit);
  v_from int := 1;
  v_size int := cardinality(v_ids);
  v_taken bigint[];
begin
  if p_alone then
    set constraints all immediate;  -- what is deferred would refuse all of them, at the end
  end if;
  while v_from <= cardinality(v_ids) loop
    begin
      with taken as (
        update job j
        set status = 'running', locked_by = p_worker, locked_until = clock() + p_leases[array_position(p_types, j.job_type)],
          attempts = j.attempts + 1, claims = j.claims + 1, started_at = clock(),
          start_recorded = case when j.losses > 0 or j.max_attempts = 1 or p_records[array_position(p_types, j.job_type)] then false end
        where j.id = any (v_ids[v_from : v_from + v_size - 1])
        returning j.id)
      select v_taken || array_agg(t.id) into v_taken from taken t;
      v_from := v_from + v_size;
      v_size := v_size * 2;
    exception when others or assert_failure then
      if sqlstate ~ '^(08|57|25006|53|58|28|3D|40|55P03)' then
        raise;  -- the whole server's trouble, or somebody is in the way: no row's fault
      elsif v_size > 1 then
        v_size := (v_size + 1) / 2;
      else
        refusal := sqlstate || ': ' || sqlerrm;
        select j.id, j.queue, j.priority, j.run_at into id, queue, priority, run_at from job j where j.id = v_ids[v_from];
        return next;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
  return query
  select j.id, coalesce(j.origin_id, j.id), j.queue, j.job_type, j.payload::text, j.payload_version, j.priority, j.run_at,
    j.expires_at, j.attempts, j.max_attempts, j.claims, j.idempotency_key, j.meta::text, j.created_at, j.start_recorded, j.losses,
    case when j.losses > 0 and j.error_type = 'LeaseExpired' then true end, j.schedule, j.scheduled_for, null
  from job j where j.id = any (v_taken);
  id := null;
  refusal := null;
  foreach queue in array v_paused loop
    return next;
  end loop;
end $$;
