-- Claims due jobs, of each branch the earliest by run_at and id. The rows come back in no order.
-- Rows: {claimed}.
--
-- Branch k is a queue, a priority, its frontier (p_after_run_at, p_after_id), and how far behind
-- the frontier to look (p_depths). Group g of slots owns the branches p_lo … p_hi and takes at most
-- p_jobs; its branches after p_urgent_hi take at most p_ordinary, so that slots stay free for
-- urgent jobs. Within a queue the highest priority comes first. p_leases and p_records run parallel
-- to p_types. p_ahead: as in job_admit. p_nothing: no job is claimed.
--
-- A paused queue gives no job, but one row or more with a queue and no id: its frontier must not
-- move. A job that may not run yet (see job_admit) is not returned either: for each queue and
-- priority one row without an id has the last of them (run_at, and its id as origin_id), how many
-- they were (attempts), and how many of them were parked (claims). The last row has neither id nor
-- queue: worker_claim puts its news there.
--
-- A row that a user's trigger or constraint refuses refuses the whole claim, unless p_refused lists
-- the rows known to be refused (it may be empty): then these rows are left out, and each further
-- refused row is returned with the database's error as its refusal. p_alone: in a transaction of
-- its own.
-- Locks: the rows it returns, with SKIP LOCKED; index job_ready. Then as job_admit.
-- Keeps: M30, no job goes to two workers; M31, a claim is a lease; M22.
create or replace function {schema}.job_claim(
  p_worker text,
  p_release text,
  p_types text[],
  p_leases interval[],
  p_records boolean[],
  p_jobs int[],
  p_ordinary int[],
  p_lo int[],
  p_urgent_hi int[],
  p_hi int[],
  p_queues text[],
  p_priorities smallint[],
  p_after_run_at timestamptz[],
  p_after_id bigint[],
  p_depths interval[],
  p_ahead interval,
  p_nothing boolean,
  p_refused bigint[],
  p_alone boolean
)
returns setof {schema}.claimed_job
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  -- Read once, before the jobs, so that the pauses and the returned jobs agree.
  v_paused text[] := {schema}.paused_queues(p_queues);
  v_refused bigint[] := coalesce(p_refused, '{}');
  v_ids bigint[];
  v_asking text[] := case when p_ahead is not null then array(
    select t.name from {schema}.types_asking() t(name)
  ) end;
  v_asks boolean;
  v_picked bigint[];                             -- the picked jobs, if some of them ask
  v_run_ats timestamptz[];                       -- when each picked job was due
  v_capped_types text[];
  v_capped_queues text[];
  v_starts jsonb;
  v_from int := 1;
  v_size int;
  v_row {schema}.claimed_job;
begin
  select
    coalesce(array_agg(found.id), '{}'),
    bool_or(found.asks)
  into v_ids, v_asks
  from (
    select picked.id, picked.asks
    from unnest(p_jobs, p_ordinary, p_lo, p_urgent_hi, p_hi) g(jobs, ordinary, lo, urgent_hi, hi)
    cross join lateral (
      select part.id, part.asks
      from (
        values (g.jobs, g.lo, g.urgent_hi), (g.ordinary, g.urgent_hi + 1, g.hi)
      ) of_part(jobs, lo, hi)
      cross join lateral (
        select branch.id, branch.asks
        from generate_series(of_part.lo, of_part.hi) k
        cross join lateral (
          select
            b.id,
            b.group_key is not null and b.in_lane is null or b.job_type = any (v_asking) as asks
          from {schema}.job b
          where b.queue = p_queues[k]
            and b.priority = p_priorities[k]
            and b.status in ('queued', 'failed')
            and (b.run_at, b.id) > (
              least(p_after_run_at[k], {schema}.clock() - p_depths[k]),
              case
                when p_after_run_at[k] <= {schema}.clock() - p_depths[k] then p_after_id[k]
                else 0
              end
            )
            and b.run_at <= {schema}.clock()
            and b.job_type = any (p_types)
            -- A payload mismatch waits for another release. After an hour any worker claims it
            -- again, and it ends dead if no other release is alive.
            and (
              b.mismatched_releases is null
              or not p_release = any (b.mismatched_releases)
              or b.run_at < {schema}.clock() - interval '1 hour'
            )
            and b.id <> all (v_refused)
          order by b.run_at, b.id
          limit of_part.jobs
          for update skip locked
        ) branch
        where p_queues[k] <> all (v_paused)
        limit of_part.jobs
      ) part
      limit g.jobs
    ) picked
    where not p_nothing
  ) found;
  if v_ids <> '{}' and (
    v_asks
    or exists (select from {schema}.queue q where q.max_running is not null)
    or exists (select from {schema}.job_type t where t.max_running is not null)
  ) then
    -- As they are now: job_admit changes the run_at of jobs that wait.
    select array_agg(j.id), array_agg(j.run_at) into v_picked, v_run_ats
    from {schema}.job j
    where j.id = any (v_ids);
    select a.ids, a.capped_types, a.capped_queues, a.starts
    into v_ids, v_capped_types, v_capped_queues, v_starts
    from {schema}.job_admit(v_ids, case when v_asks then p_ahead end) a;
  end if;
  v_size := cardinality(v_ids);
  if p_refused is null then
    return query
    select t.*
    from {schema}.job_take(
      v_ids, p_worker, p_types, p_leases, p_records, v_capped_types, v_capped_queues, v_starts
    ) t;
    v_from := v_size + 1;
  elsif p_alone then
    set constraints all immediate;  -- a deferred one would refuse all rows, at the end
  end if;
  while v_from <= cardinality(v_ids) loop
    begin
      return query
      select t.*
      from {schema}.job_take(
        v_ids[v_from : v_from + v_size - 1],
        p_worker, p_types, p_leases, p_records, v_capped_types, v_capped_queues, v_starts
      ) t;
      v_from := v_from + v_size;
      v_size := v_size * 2;
    exception when others or assert_failure then
      if {schema}.is_no_rows_fault(sqlstate) or sqlstate = '55P03' then
        raise;  -- a fault of the server or a lock conflict is no row's fault
      elsif v_size > 1 then
        v_size := (v_size + 1) / 2;
      else
        v_row := null;
        select j.id, j.queue, j.priority, j.run_at
        into v_row.id, v_row.queue, v_row.priority, v_row.run_at
        from {schema}.job j
        where j.id = v_ids[v_from];
        v_row.refusal := sqlstate || ': ' || sqlerrm;
        return next v_row;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
  v_row := null;
  if cardinality(v_picked) > cardinality(v_ids) then
    for
      v_row.queue, v_row.priority, v_row.run_at, v_row.origin_id, v_row.attempts, v_row.claims
    in
      select
        j.queue, j.priority,
        (array_agg(p.run_at order by p.run_at desc, p.id desc))[1],
        (array_agg(p.id order by p.run_at desc, p.id desc))[1],
        count(*),
        count(*) filter (where j.status = 'waiting' or j.run_at > {schema}.clock())
      from unnest(v_picked, v_run_ats) p(id, run_at)
      join {schema}.job j on j.id = p.id
      where p.id not in (select unnest(v_ids))
      group by j.queue, j.priority
    loop
      return next v_row;
    end loop;
  end if;
  v_row := null;
  foreach v_row.queue in array v_paused loop
    return next v_row;
  end loop;
  v_row.queue := null;
  return next v_row;
end $$;
