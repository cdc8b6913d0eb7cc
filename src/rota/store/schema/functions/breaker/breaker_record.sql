-- Records what ended attempts say of their endpoints. p_results is an array of objects, one for
-- each breaker and one for each trial:
--   name, key         the breaker
--   failed_after_s    of each failure, how long ago its attempt began
--   failures, within_s, open_for_s, max_open_s   when it opens, and for how long
--   reason            the last failure
--   trial_job, trial_claim, trial   a trial's job and result: the endpoint serves, fails, or is
--                     unknown: the job was at fault, or did not run
-- The caller leaves out successes of closed breakers. While a breaker is not closed, only its trial
-- counts. Returns for how long each breaker is open now, and what this call changed: opened,
-- reopened (the trial failed), closed, or untried (another job may try).
-- Locks: the breakers, in the order of their names, waiting briefly. Then as breaker_end_trial.
-- Keeps: M63, late results of jobs that began before it opened change and write nothing.
create or replace function {schema}.breaker_record(p_results jsonb)
returns table (name text, key text, wait_s float8, change text)
language plpgsql
set enable_seqscan = off set jit = off set lock_timeout = '200ms'
as $$
declare
  v_result record;
begin
  for v_result in
    select r.*
    from jsonb_to_recordset(p_results) r(
      name text, key text, failed_after_s float8[],
      failures int, within_s float8, open_for_s float8, max_open_s float8,
      reason text, trial_job bigint, trial_claim int, trial text
    )
    order by r.name, r.key, r.trial nulls first
  loop
    name := v_result.name;
    key := v_result.key;
    change := case
      when v_result.trial is null then {schema}.breaker_count(
        name, key, v_result.failed_after_s, v_result.failures,
        v_result.within_s * interval '1 second', v_result.open_for_s * interval '1 second',
        v_result.reason
      )
      else {schema}.breaker_end_trial(
        v_result.trial_job, v_result.trial_claim, v_result.trial,
        v_result.within_s * interval '1 second', v_result.open_for_s * interval '1 second',
        v_result.max_open_s * interval '1 second', v_result.reason
      )
    end;
    wait_s := (select s.wait_s from {schema}.breaker_state(name, key) s);
    return next;
  end loop;
end $$;
