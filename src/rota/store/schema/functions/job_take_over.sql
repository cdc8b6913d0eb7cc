-- Takes jobs to where a person wants them: `queued` and due (retry now) or `dead` (bury). From a running one it takes the lease away, and the attempt is charged
-- as the reaper would charge it: not, when it may have begun only in its worker's buffer and the job was never lost before. The fence is bumped, so the
-- worker, which is told, writes nothing any more. A running job that somebody had called off is cancelled instead of queued.
create or replace function job_take_over(p_verb text, p_ids bigint[], p_why text, p_by text) returns table (id bigint, answer text, status text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path from current as $$
#variable_conflict use_column
declare
  v_by text := coalesce(one_line(p_by, 200), session_user);
  v_why text := one_line(p_why, 500);
  v_buries boolean := p_verb = 'bury';
  v_done bigint[]; v_off bigint[]; v_workers text[];
begin
  perform today_ensure();
  with mine as materialized (  -- by the primary key alone: with the status the planner may take a partial index, and lock in its order
    select j.* from job j where j.id = any (p_ids) order by j.id for update),
  decided as materialized (
    select m.id, m.claims, m.attempts, m.job_type, m.locked_by, m.started_at, m.status as was, m.status = 'running' as is_held,
      m.status = 'running' and m.start_recorded is not false as may_have_begun,
      m.status <> 'running' or m.start_recorded is true or m.start_recorded is null and coalesce(m.losses, 0) > 0 as charged,
      format('%s by %s%s', case when v_buries then 'buried' else 'taken from its worker to be retried' end, v_by, ': ' || v_why) as message
    from mine m where m.status in ('queued', 'failed', 'running') or v_buries and m.status = 'waiting'),
  taken as (
    update job j
    set status = case when v_buries then 'dead' else 'queued' end, locked_by = null, locked_until = null, start_recorded = null,
      claims = j.claims + d.is_held::int, attempts = j.attempts - (not d.charged)::int,
      losses = case when d.may_have_begun then coalesce(j.losses, 0) + 1 else j.losses end,
      -- What is due already keeps its place.
      run_at = case when v_buries or not d.is_held and j.run_at <= clock() then j.run_at else clock() end,
      misfits = case when v_buries then j.misfits end,
      started_at = case when d.is_held and not d.may_have_begun then null else j.started_at end,
      last_error = case when v_buries or d.is_held then d.message else j.last_error end,
      error_type = case when v_buries then 'Buried' when d.is_held then 'LeaseTaken' else j.error_type end,
      response_code = case when v_buries or d.is_held then null else j.response_code end,
      verdict = case when v_buries then 'fatal' when d.is_held then 'transient' else j.verdict end,
      verdict_rule = case when v_buries or d.is_held then p_verb else j.verdict_rule end,
      failed_at = case when v_buries or d.is_held then clock() else j.failed_at end, updated_at = clock()
    from decided d where j.id = d.id
    returning j.id, j.run_at, d.is_held and not v_buries and j.cancel_requested_at is not null as is_off),
  recorded as (
    insert into attempt (job, claim, attempt, job_type, worker, started_at, finished_at, outcome, error_type, message, verdict, verdict_rule, next_run_at)
    select d.id, d.claims, d.attempts, d.job_type, d.locked_by, case when d.may_have_begun then d.started_at end, clock(),
      case when v_buries then 'dead' when t.is_off then 'cancelled' else 'queued' end, case when v_buries then 'Buried' else 'LeaseTaken' end,
      d.message || case when d.charged then '' when d.may_have_begun then '; not charged, for it may not have begun'
        else '; not charged, for it had not begun' end,
      case when v_buries then 'fatal' else 'transient' end, p_verb, case when not v_buries and not t.is_off then t.run_at end
    from decided d join taken t on t.id = d.id where d.is_held),
  logged as (
    insert into action (verb, job, by, why, detail)
    select p_verb, d.id, v_by, v_why, jsonb_strip_nulls(jsonb_build_object('was', d.was, 'worker', case when d.is_held then d.locked_by end))
    from decided d order by d.id)
  select array_agg(t.id), array_agg(t.id) filter (where t.is_off), array_agg(distinct d.locked_by) filter (where d.is_held)
  into v_done, v_off, v_workers from taken t join decided d on d.id = t.id;
  if v_off is not null then
    perform job_call_off(v_off);
  end if;
  perform pg_notify(current_schema() || '.workers', worker) from unnest(v_workers) worker;
  if not v_buries then  -- the bell, as for a new job
    perform pg_notify(current_schema(), q.name) from queue q
    where q.bell_until > clock() and (q.paused_at is null or q.paused_until <= clock())
      and q.name in (select j.queue from job j where j.id = any (v_done));
  end if;
  return query
  select a.id, case when a.id = any (v_off) then 'cancelled' else a.answer end, a.status from job_answers(p_ids, v_done, 'done') a;
end $$;
