-- Takes jobs away from workers that let their leases expire. What may have begun only in a worker's buffer comes back uncharged the first time; from
-- then on the loss counts, by the plan stored with the type. A job whose start had to be recorded and was not has not begun, and is never charged.
-- After the server came up, or after the asking worker's own connection came back (p_steady_s seconds ago; NULL: it was not away), half a lease is left
-- to those who could not renew, 60 s at most. Reads the lease index from p_since on, so that it does not walk over the entries of all jobs that ever
-- ran; not while some must be waited for. p_only: of these jobs only; NULL: of all.
create or replace function job_reap(p_since timestamptz, p_limit int, p_steady_s float8 default null, p_only bigint[] default null)
returns table (id bigint, job_type text, claims int, attempts int, worker text, status text, run_at timestamptz, reason text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set search_path from current as $$
#variable_conflict use_column
declare
  v_steady interval := least(uptime(), p_steady_s * interval '1 second');
  v_since timestamptz := case when v_steady < interval '90 seconds' then '-infinity' else p_since end;
  v_queue text;
  v_run_at timestamptz;
  v_back bigint[];
  v_off bigint[];
begin
  perform wait_briefly(p_only);
  for id, job_type, claims, attempts, worker, status, run_at, reason in
    with lost as materialized (
      select j.* from job j
      where j.status = 'running' and j.locked_until >= v_since and j.locked_until < clock()
        and v_steady > least(coalesce((select t.lease from job_type t where t.name = canonical_type(j.job_type)), interval '2 minutes') / 2,
                             interval '60 seconds')
        and (p_only is null or j.id = any (p_only))
      order by j.locked_until limit p_limit for update skip locked),
    judged as materialized (
      select l.*, t.retry_after, coalesce(t.on_lost, 'retry') = 'dead' or l.attempts >= coalesce(l.max_attempts, t.max_attempts, 10) as gives_up,
        l.start_recorded is not false as may_have_begun,
        l.start_recorded is true or l.start_recorded is null and coalesce(l.losses, 0) > 0 as charged,
        format('worker %s let its lease expire: it died, froze or lost the database', l.locked_by) as message
      from lost l left join job_type t on t.name = canonical_type(l.job_type)),
    decided as materialized (
      select d.*, case when not d.charged then 'queued' when d.gives_up then 'dead' else 'failed' end as becomes from judged d),
    reaped as (
      update job j
      set status = d.becomes, locked_by = null, locked_until = null, start_recorded = null, claims = j.claims + 1,
        attempts = case when d.charged then j.attempts else j.attempts - 1 end,
        losses = case when d.may_have_begun then coalesce(j.losses, 0) + 1 else j.losses end,
        run_at = case when d.becomes <> 'failed' then j.run_at
          else clock() + coalesce(d.retry_after[least(d.attempts, cardinality(d.retry_after))], interval '10 seconds') end,
        started_at = case when d.may_have_begun then j.started_at end,
        last_error = case when d.may_have_begun then d.message else j.last_error end,
        error_type = case when d.may_have_begun then 'LeaseExpired' else j.error_type end,
        response_code = case when d.may_have_begun then null else j.response_code end,
        verdict = case when d.may_have_begun then 'transient' else j.verdict end,
        verdict_rule = case when d.may_have_begun then 'lease expired' else j.verdict_rule end,
        failed_at = case when d.may_have_begun then clock() else j.failed_at end, updated_at = clock()
      from decided d where j.id = d.id
      returning j.id, j.job_type, j.attempts, case when j.cancel_requested_at is null or j.status = 'dead' then j.status else 'cancelled' end as status,
        j.run_at, j.cancel_reason),
    recorded as (
      insert into attempt (job, claim, attempt, job_type, worker, started_at, finished_at, outcome, error_type, message, verdict, verdict_rule,
        next_run_at)
      select d.id, d.claims, d.attempts, d.job_type, d.locked_by, case when d.may_have_begun then d.started_at end, clock(), r.status, 'LeaseExpired',
        d.message || case when d.charged then '' when d.may_have_begun then '; not charged, for it may not have begun'
          else '; not charged, for it had not begun' end,
        'transient', 'lease expired', case when r.status not in ('dead', 'cancelled') then r.run_at end
      from decided d join reaped r on r.id = d.id)
    select r.id, r.job_type, d.claims, d.attempts, d.locked_by, r.status, r.run_at, case when r.status = 'cancelled' then r.cancel_reason end
    from reaped r join decided d on d.id = r.id
  loop
    if status = 'queued' then
      v_back := v_back || id;
    elsif status = 'cancelled' then
      v_off := v_off || id;
    end if;
    return next;
  end loop;
  if v_off is not null then
    perform job_call_off(v_off);
  end if;
  for v_queue, v_run_at in select j.queue, min(j.run_at) from job j where j.id = any (v_back) group by j.queue order by j.queue loop
    perform look_back(v_queue, v_run_at);
  end loop;
end $$;
