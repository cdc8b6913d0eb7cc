-- Tells a breaker how its trial ends, for a program in SQL or a handler that finishes its job in
-- its own transaction; no trial: nothing happens. The defaults of a breaker's rules count here,
-- because only workers in Python know the rules. If another transaction or a user's trigger
-- prevents the write, the job ends all the same: the trial is over with its claim.
-- Locks: as breaker_end_trial, waiting briefly; index breaker_active.
create or replace function {schema}.trial_end(
  p_job bigint, p_claim int, p_trial text, p_reason text
)
returns void
language plpgsql
set enable_seqscan = off set jit = off set lock_timeout = '200ms'
as $$
begin
  if exists (
    select
    from {schema}.breaker b
    where b.state = 'trial'
      and b.trial_job = p_job
      and b.trial_claim = p_claim
  ) then
    perform {schema}.breaker_end_trial(
      p_job, p_claim, p_trial,
      interval '1 minute', interval '30 seconds', interval '15 minutes', p_reason
    );
  end if;
exception when others or assert_failure then
  if {schema}.is_no_rows_fault(sqlstate) and sqlstate !~ '^40' then
    raise;
  end if;
end $$;
