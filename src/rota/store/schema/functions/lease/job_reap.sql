-- Takes jobs from workers whose leases expired. A job that may never have left a worker's buffer
-- comes back uncharged the first time. From the second loss on it is charged, by its type's rules.
--
-- After the server came up, or the calling worker's own connection came back (p_steady_s seconds
-- ago; NULL: it was not away), workers get half a lease, at most 60 s, to renew. After a step of
-- the server's clock (p_step_s and p_moved_s; NULL: none) too: leases_move. The lease index is read
-- from p_since on, or from its beginning while a worker must be waited for. p_only NULL: all jobs.
create or replace function {schema}.job_reap(
  p_since timestamptz,
  p_limit int,
  p_steady_s float8 default null,
  p_step_s float8 default null,
  p_moved_s float8 default null,
  p_only bigint[] default null
)
returns table (
  id bigint,
  job_type text,
  claims int,
  attempts int,
  worker text,
  status text,
  run_at timestamptz,
  reason text
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
as $$
declare
  v_steady interval := least({schema}.uptime(), p_steady_s * interval '1 second');
  v_since timestamptz := case
    when v_steady < interval '90 seconds' then '-infinity'
    else p_since
  end;
  v_left text[];
  v_rooms text[];                                -- what the jobs have left
begin
  perform {schema}.wait_briefly(p_only);
  if p_step_s is not null then
    perform {schema}.leases_move(p_step_s, p_moved_s);
  end if;
  for id, job_type, claims, attempts, worker, status, run_at, reason, v_left in
  with lost as materialized (
    select
      j.id, j.job_type, j.claims, j.attempts, j.max_attempts, j.locked_by,
      j.start_recorded, j.losses, j.started_at,
      j.group_key, j.queue, j.capped,
      format(
        'worker %s let its lease expire: %s', j.locked_by,
        coalesce(
          (
            select 'outcomes were refused: ' || w.refused
            from {schema}.worker w
            where w.name = j.locked_by
              and w.refused ~ 'finisher'
          ),
          'it died, froze or lost the database'
        )
      ) as message
    from {schema}.job j
    where j.status = 'running'
      and j.locked_until >= v_since
      and j.locked_until < {schema}.clock()
      and v_steady > least(
        coalesce(
          (
            select t.lease
            from {schema}.job_type t
            where t.name = {schema}.canonical_type(j.job_type)
          ),
          {schema}.lease_default()
        ) / 2,
        interval '60 seconds'
      )
      and (p_only is null or j.id = any (p_only))
    order by j.locked_until
    limit p_limit
    for update skip locked
  ),
  decided as materialized (
    select
      {schema}.loss_of(
        l.id, l.claims, l.start_recorded, l.losses, l.started_at, l.message
      ) as loss,
      coalesce(t.on_lost = 'dead', false)
        or l.attempts >= coalesce(l.max_attempts, t.max_attempts, 10) as gives_up,
      coalesce(
        t.retry_after[least(l.attempts, cardinality(t.retry_after))],
        interval '10 seconds'
      ) as delay
    from lost l
    left join {schema}.job_type t on t.name = {schema}.canonical_type(l.job_type)
  ),
  outcomes as materialized (
    select
      jsonb_agg(
        d.loss
        || jsonb_build_object('error_type', 'LeaseExpired', 'verdict_rule', 'lease expired')
        || case
          when not (d.loss -> 'charged')::boolean then '{"status": "queued"}'
          when d.gives_up then '{"status": "dead"}'
          else jsonb_build_object('status', 'failed', 'delay_s', extract(epoch from d.delay))
        end
      ) as all_of_them
    from decided d
  ),
  returned as materialized (  -- so that job_leave runs once, whatever the join's plan is
    select r.*
    from outcomes o
    cross join lateral {schema}.job_leave(o.all_of_them, null::text) r
  )
  select
    l.id, l.job_type, l.claims, l.attempts, l.locked_by, r.status, r.run_at,
    case when r.status = 'dead' then l.message else r.reason end,
    array['group ' || l.group_key] || case
      when l.capped
        then array['type ' || {schema}.canonical_type(l.job_type), 'queue ' || l.queue]
    end
  from returned r
  join lost l on l.id = r.id
  loop
    return next;
    v_rooms := v_rooms || v_left;
  end loop;
  perform {schema}.rooms_advance(array_remove(v_rooms, null), 200);
end $$;
