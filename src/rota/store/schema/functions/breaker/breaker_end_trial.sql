-- Ends a trial: `serves` closes the breaker, `fails` opens it for twice as long as before, up to
-- p_max_open, and `unknown` lets another job try at once. Returns closed, reopened or untried;
-- NULL: no breaker has this trial any more. A closed breaker is remembered for an hour longer than
-- its failures count, for late failures of earlier attempts.
-- Locks: the row of the breaker; index breaker_active. Then waiting jobs, SKIP LOCKED; job_waits.
-- Keeps: M63, the trial is fenced by its job and its claim.
create or replace function {schema}.breaker_end_trial(
  p_job bigint,
  p_claim int,
  p_trial text,
  p_within interval,
  p_open_for interval,
  p_max_open interval,
  p_reason text
)
returns text
language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
  v_open_until timestamptz;
  v_room text;
begin
  update {schema}.breaker b
  set
    state = case when p_trial = 'serves' then 'closed' else 'open' end,
    failed_at = '{}',
    openings = case p_trial
      when 'serves' then 0
      when 'fails' then b.openings + 1
      else b.openings
    end,
    open_until = case p_trial
      when 'fails'
        then {schema}.clock() + least(p_max_open, p_open_for * 2 ^ least(b.openings, 20))
      when 'unknown' then {schema}.clock()
    end,
    trial_job = null,
    trial_claim = null,
    opened_at = case when p_trial <> 'serves' then b.opened_at end,
    closed_at = case when p_trial = 'serves' then {schema}.clock() else b.closed_at end,
    forget_at = case
      when p_trial = 'serves' then {schema}.clock() + p_within + interval '1 hour'
    end,
    reason = case
      when p_trial = 'fails' then {schema}.one_line(p_reason, 500)
      when p_trial = 'unknown' then b.reason
    end,
    changed_at = {schema}.clock(),
    changed_by = null
  where b.state = 'trial'
    and b.trial_job = p_job
    and b.trial_claim = p_claim
  returning b.open_until, {schema}.room_name('breaker'::text, b.name, b.key)
  into v_open_until, v_room;
  if not found then
    return null;
  end if;
  if p_trial = 'serves' then
    perform {schema}.breaker_release(array[v_room]);
    return 'closed';
  end if;
  -- The next trial need not wait for a job that was put off for longer.
  perform {schema}.jobs_hasten(
    array(
      select j.id
      from {schema}.job j
      where j.waits_for = v_room
        and j.status in ('queued', 'failed')
      order by j.priority desc, j.run_at, j.id
      limit 1
    ),
    greatest(v_open_until, {schema}.clock()),
    false
  );
  return case p_trial when 'fails' then 'reopened' else 'untried' end;
end $$;
