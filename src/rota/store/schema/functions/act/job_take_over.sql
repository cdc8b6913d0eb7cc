-- Moves jobs to where a person wants them: `queued` and due (retry), or `dead` (discard). A running
-- job loses its lease, and is charged as the reaper would charge it. Its fence grows, so its
-- worker, which is woken, can write nothing more for it. A running job with a request to cancel
-- becomes cancelled, not queued. Without p_running, running jobs are refused.
create or replace function {schema}.job_take_over(
  p_verb text,
  p_ids bigint[],
  p_why text,
  p_by text,
  p_running boolean
)
returns table (id bigint, answer text, status text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_by text := coalesce({schema}.one_line(p_by, 200), session_user);
  v_why text := {schema}.one_line(p_why, 500);
  v_discards boolean := p_verb = 'discard';
  v_message text := format(
    '%s by %s%s',
    case when v_discards then 'discarded' else 'taken from its worker to be retried' end,
    v_by,
    ': ' || v_why
  );
  v_done bigint[];
  v_was text[];
  v_held_by text[];
  v_losses jsonb;
  v_cancelled bigint[];
  v_halts bigint[];                              -- discarded jobs that halt their lanes
begin
  perform {schema}.partitions_ensure(0);
  -- By the primary key alone: with the status in the condition the planner may choose a partial
  -- index, and lock the rows in that index's order.
  select
    array_agg(mine.id),
    array_agg(mine.status),
    array_agg(mine.locked_by),
    jsonb_agg(
      {schema}.loss_of(
        mine.id, mine.claims, mine.start_recorded, mine.losses, mine.started_at, v_message
      )
      || jsonb_build_object(
        'attempt_only', false,
        'error_type', case when v_discards then 'Discarded' else 'LeaseTaken' end,
        'status', case when v_discards then 'dead' else 'queued' end,
        'verdict', case when v_discards then 'fatal' else 'transient' end,
        'verdict_rule', p_verb,
        'delay_s', 0
      )
    ) filter (where mine.status = 'running')
  into v_done, v_was, v_held_by, v_losses
  from (
    select
      j.id, j.status, j.locked_by, j.claims, j.start_recorded, j.losses, j.started_at
    from {schema}.job j
    where j.id = any (p_ids)
    order by j.id
    for update
  ) mine
  where mine.status in ('queued', 'failed')
    or p_running and mine.status = 'running'
    or v_discards and mine.status = 'waiting';
  v_cancelled := array(
    select r.id
    from {schema}.job_leave(v_losses, null::text) r
    where r.status = 'cancelled'
  );
  v_halts := array(
    select j.id
    from {schema}.job j
    where j.id = any (v_done)
      and v_discards
      and j.in_lane
      and {schema}.lane_keeps(j.job_type, 'dead'::text, null::float8, null::text)
  );
  -- All ids: jobs that ran have left `running`, and cancelled jobs are gone.
  update {schema}.job j
  set
    status = case when v_discards then 'dead' else 'queued' end,
    -- A job that is due already keeps its place.
    run_at = case
      when v_discards or j.run_at <= {schema}.clock() then j.run_at
      else {schema}.clock()
    end,
    mismatched_releases = case when v_discards then j.mismatched_releases end,
    last_error = case when v_discards then v_message else j.last_error end,
    error_type = case when v_discards then 'Discarded' else j.error_type end,
    response_code = case when v_discards then null else j.response_code end,
    verdict = case when v_discards then 'fatal' else j.verdict end,
    verdict_rule = case when v_discards then p_verb else j.verdict_rule end,
    failed_at = case when v_discards then {schema}.clock() else j.failed_at end,
    in_lane = case
      when not v_discards or j.id = any (v_halts) then j.in_lane
      when j.group_key is not null then false
    end,
    waits_for = case when j.id = any (v_halts) then 'person' end,
    waits_since = case when j.id = any (v_halts) then {schema}.clock() end,
    updated_at = {schema}.clock()
  where j.id = any (v_done);
  if v_discards then
    perform {schema}.keys_give_up(v_done);
    -- Jobs that ran were counted when they left `running`.
    perform {schema}.batches_count_dead(
      array(select m.id from unnest(v_done, v_was) m(id, was) where m.was <> 'running'),
      1
    );
  end if;
  insert into {schema}.action (verb, job, by, why, detail)
  select
    p_verb,
    m.id,
    v_by,
    v_why,
    jsonb_strip_nulls(jsonb_build_object('was', m.was, 'worker', m.held_by))
  from unnest(v_done, v_was, v_held_by) m(id, was, held_by)
  order by m.id;
  perform pg_notify({schema}.channel_of(held.by_worker), '')
  from (select distinct unnest(v_held_by)) held(by_worker)
  where held.by_worker is not null;
  if not v_discards then
    perform {schema}.wake_up(
      array(select j.queue from {schema}.job j where j.id = any (v_done)),
      cardinality(v_done)
    );
  end if;
  return query
  select
    a.id,
    case when a.id = any (v_cancelled) then 'cancelled' else a.answer end,
    a.status
  from {schema}.job_answers(p_ids, v_done, 'done'::text) a;
end $$;
