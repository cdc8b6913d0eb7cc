-- Takes jobs that have not ended, or are dead, out of `running`. p_outcomes is an array of objects:
--   id, claims        the claim
--   status            failed, dead, queued or waiting; of a payload mismatch the server decides
--   charged           whether the attempt counts
--   loss              whether the worker leaves or lost the job after it may have begun
--   delay_s           seconds until run_at; NULL keeps run_at and asks the workers to look back
--   ran_s             seconds since the handler began; NULL: it did not begin
--   error_type …      what to keep of the error; with one, the attempt gets a row in `attempt`
--   attempt_only      the error is kept in `attempt`, and not on the job
--   payload_mismatch  this release cannot read the payload: the job waits for 'payload TYPE', due
--                     at once for another release that was seen within the last hour; without such
--                     a release it is dead
--   waits_for         as in the table; NULL: nothing. waits_since stays if it was handed back for
--                     the same; a job that counts in a cap keeps the time of any earlier wait
--   awaits            of a job that waits for jobs: jobs (their ids) and on_failure, for its meta
-- p_release is the release of the worker that held the jobs; NULL: the reaper or a person takes
-- them out. A job with a request to cancel becomes cancelled, unless it is dead. Returns the new
-- status of the jobs whose claim was still held. Places in lanes (lane_keeps) and slots in caps
-- that become free: job_leave_laned.
-- Locks: the rows it is given, in id order; index job_pkey. Then keys of dead jobs ('live').
-- Keeps: M32, no other claim is touched; M40, a retry lies in the future.
create or replace function {schema}.job_leave(p_outcomes jsonb, p_release text)
returns table (id bigint, status text, run_at timestamptz, reason text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
as $$
declare
  v_is_back boolean;
  v_back bigint[];
  v_cancelled bigint[];
  v_dead bigint[];
  v_awaits jsonb;
  v_waiting bigint[];
  v_awaited jsonb[];
begin
  for id, status, run_at, reason, v_is_back, v_awaits in
    with input as materialized (
      select *
      from jsonb_to_recordset(p_outcomes) i(
        id bigint,
        claims int,
        status text,
        charged boolean,
        loss boolean,
        delay_s float8,
        ran_s float8,
        error_type text,
        message text,
        verdict text,
        verdict_rule text,
        response_code int,
        stack text,
        attempt_only boolean,
        payload_mismatch boolean,
        waits_for text,
        awaits jsonb
      )
    ),
    mine as materialized (
      select j.*
      from {schema}.job j
      where j.id = any (array(select i.id from input i))
        and ((j.id, j.claims) in (select i.id, i.claims from input i)) is true
      order by j.id
      for update
    ),
    decided as materialized (
      select
        m.id, m.attempts, m.claims, m.job_type, m.locked_by, m.in_lane,
        i.charged, i.loss,
        i.error_type, i.message, i.verdict, i.verdict_rule, i.response_code, i.stack,
        i.error_type is not null and i.attempt_only is not true as job_failed,
        i.payload_mismatch is true as payload_mismatch,
        case
          when i.payload_mismatch then 'payload ' || m.job_type
          else i.waits_for
        end as waits_for,
        i.awaits,
        {schema}.clock() - i.ran_s * interval '1 second' as started_at,
        case
          when i.payload_mismatch is not true then i.status
          else {schema}.mismatch_status(m.job_type, m.mismatched_releases, p_release)
        end as status,
        case
          when i.payload_mismatch then 0
          else i.delay_s
        end as delay_s
      from mine m
      join input i on i.id = m.id and i.claims = m.claims
    ),
    settled as (
      select
        d.*,
        case
          when d.in_lane
            then {schema}.lane_keeps(
              d.job_type, d.status, d.delay_s,
              case when not d.payload_mismatch then d.waits_for end
            )
        end as keeps_lane
      from decided d
    ),
    returned as (
      update {schema}.job j
      set
        status = d.status,
        locked_by = null,
        locked_until = null,
        start_recorded = null,
        claims = j.claims + 1,
        attempts = case when d.charged then j.attempts else j.attempts - 1 end,
        losses = case when d.loss then coalesce(j.losses, 0) + 1 else j.losses end,
        run_at = case
          when d.status = 'dead' or d.delay_s is null then j.run_at
          else {schema}.clock() + d.delay_s * interval '1 second'
        end,
        mismatched_releases = case
          when d.payload_mismatch and not p_release = any (coalesce(j.mismatched_releases, '{}'))
            then array_append(j.mismatched_releases, p_release)
          else j.mismatched_releases
        end,
        started_at = d.started_at,
        last_error = case when d.job_failed then d.message else j.last_error end,
        error_type = case when d.job_failed then d.error_type else j.error_type end,
        response_code = case when d.job_failed then d.response_code else j.response_code end,
        verdict = case when d.job_failed then d.verdict else j.verdict end,
        verdict_rule = case when d.job_failed then d.verdict_rule else j.verdict_rule end,
        failed_at = case when d.job_failed then {schema}.clock() else j.failed_at end,
        capped = null,
        in_lane = case
          when d.keeps_lane then true
          when d.status = 'dead' and j.group_key is not null then false
        end,
        waits_for = case
          when d.status <> 'dead' then d.waits_for
          when d.keeps_lane then 'person'
        end,
        waits_since = case
          when d.status = 'waiting' then {schema}.clock()
          when d.waits_for = j.waits_for and d.status <> 'dead' then j.waits_since
          -- The claim has forgotten what it waited for.
          when d.waits_for is not null and j.capped and d.status <> 'dead'
            then coalesce(j.waits_since, {schema}.clock())
          when d.waits_for is not null or d.status = 'dead' and d.keeps_lane
            then {schema}.clock()
        end,
        updated_at = {schema}.clock()
      from settled d
      where j.id = d.id
      returning
        j.id,
        j.run_at,
        j.cancel_reason,
        d.status = 'queued' and d.delay_s is null as is_back,
        d.awaits,
        case
          when j.cancel_requested_at is null or j.status = 'dead' then j.status
          else 'cancelled'
        end as status
    ),
    recorded as (
      insert into {schema}.attempt (
        job, claim, attempt, job_type, worker, release,
        started_at, finished_at, outcome,
        error_type, message, verdict, verdict_rule, response_code, stack,
        next_run_at
      )
      select
        d.id, d.claims, d.attempts, d.job_type, d.locked_by, p_release,
        d.started_at, {schema}.clock(), r.status,
        d.error_type, d.message, d.verdict, d.verdict_rule, d.response_code, d.stack,
        case when r.status not in ('dead', 'cancelled') then r.run_at end
      from decided d
      join returned r on r.id = d.id
      where d.error_type is not null
    )
    select
      r.id,
      r.status,
      case when r.status <> 'cancelled' then r.run_at end,
      case when r.status = 'cancelled' then r.cancel_reason end,
      r.is_back,
      r.awaits
    from returned r
  loop
    if status = 'cancelled' then
      v_cancelled := v_cancelled || id;
    elsif v_is_back then
      v_back := v_back || id;
    elsif status = 'dead' then
      v_dead := v_dead || id;
    elsif v_awaits is not null then
      v_waiting := v_waiting || id;
      v_awaited := v_awaited || v_awaits;
    end if;
    return next;
  end loop;
  if v_cancelled is not null then
    perform {schema}.job_to_history(v_cancelled, 'cancelled'::text);
  end if;
  if v_dead is not null then
    perform {schema}.keys_give_up(v_dead);
    perform {schema}.batches_count_dead(v_dead, 1);
  end if;
  if v_back is not null then
    perform {schema}.look_back(b.queue, b.run_at)
    from (
      select j.queue, min(j.run_at) as run_at
      from {schema}.job j
      where j.id = any (v_back)
      group by j.queue
      order by j.queue  -- the order in which look_back locks the rows of queues
    ) b;
    perform {schema}.wake_up(array_agg(j.queue), count(*)::int)
    from {schema}.job j
    where j.id = any (v_back);
  end if;
  if v_waiting is not null then
    -- The meta says for which jobs they wait, beside their earlier waits: so a claim returns it.
    update {schema}.job j
    set meta = coalesce(j.meta, '{}') || jsonb_build_object(
      'rota.waits',
      jsonb_build_object(
        'jobs', a.awaits -> 'jobs',
        'before', to_jsonb(array(
          select distinct told.id
          from unnest(
            {schema}.wait_ids(j.meta, 'before'::text) || {schema}.wait_ids(j.meta, 'jobs'::text)
          ) told(id)
          order by told.id
        )),
        'on_failure', a.awaits -> 'on_failure'
      )
    )
    from unnest(v_waiting, v_awaited) a(id, awaits)
    where j.id = a.id;
  end if;
end $$;
