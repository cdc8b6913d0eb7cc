-- Claims due jobs. Branch k is a priority with its frontier (p_after_…) and how far behind it to look (p_depths); queue q owns the branches
-- p_lo … p_hi, highest priority first, and takes at most p_slots; all together at most p_limit. p_leases and p_records go with p_types. A job that was
-- lost before, that has one attempt only, or whose type is in p_records, may begin only after job_start has recorded it. Paused queues are left out, and
-- each is told as a row with its name and no id: its emptiness means nothing, and must move no frontier.
create or replace function job_claim(
  p_worker text, p_release text, p_types text[], p_leases interval[], p_records boolean[], p_queues text[], p_slots int[], p_lo int[], p_hi int[],
  p_priorities smallint[], p_after_run_at timestamptz[], p_after_id bigint[], p_depths interval[], p_limit int)
returns table (id bigint, origin_id bigint, queue text, job_type text, payload text, payload_version smallint, priority smallint, run_at timestamptz,
  expires_at timestamptz, attempts int, max_attempts int, claims int, idempotency_key text, meta text, created_at timestamptz, start_recorded boolean,
  losses smallint, suspected boolean, schedule text, scheduled_for timestamptz)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan
set search_path from current as $$
#variable_conflict use_column
declare
  -- Asked once and before the jobs are, so that what is told and what is taken agree.
  v_paused text[] := case
    when exists (select from site s
                 where s.copied is not null or s.paused_at is not null and (s.paused_until is null or s.paused_until > clock())) then p_queues
    else array(select p.name from queue p
               where p.name = any (p_queues) and p.paused_at is not null and (p.paused_until is null or p.paused_until > clock())) end;
begin
  return query
  update job j
  set status = 'running', locked_by = p_worker, locked_until = clock() + p_leases[array_position(p_types, j.job_type)],
    attempts = j.attempts + 1, claims = j.claims + 1, started_at = clock(),
    start_recorded = case when j.losses > 0 or j.max_attempts = 1 or p_records[array_position(p_types, j.job_type)] then false end
  where j.id = any (array(
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
          -- A misfit waits for another release; one that none has taken for an hour is looked at again, and ends dead if none is alive.
          and (b.misfits is null or not p_release = any (b.misfits) or b.run_at < clock() - interval '1 hour')
        order by b.run_at, b.id limit q.slots for update skip locked) branch
      limit q.slots) picked
    where q.queue <> all (v_paused)
    limit p_limit))
  returning j.id, coalesce(j.origin_id, j.id), j.queue, j.job_type, j.payload::text, j.payload_version, j.priority, j.run_at,
    j.expires_at, j.attempts, j.max_attempts, j.claims, j.idempotency_key, j.meta::text, j.created_at, j.start_recorded, j.losses,
    case when j.losses > 0 and j.error_type = 'LeaseExpired' then true end, j.schedule, j.scheduled_for;
  foreach queue in array v_paused loop
    return next;
  end loop;
end $$;
