-- Returns how a job stands before one breaker: open, trial (another job tries: wait), or due (one
-- job may try). wait_s: how long to wait; NULL: until a person resets it. No row: it is closed. A
-- trial is over as soon as its job is no longer held under that claim.
-- Locks: none; index breaker_pkey and job_pkey.
create or replace function {schema}.breaker_state(p_name text, p_key text)
returns table (state text, wait_s float8)
language sql stable
as $$
  select
    case
      when b.state = 'open' and (b.open_until > n.now) is not false then 'open'
      when b.state = 'trial' and {schema}.claim_is_live(b.trial_job, b.trial_claim) then 'trial'
      else 'due'
    end,
    extract(epoch from b.open_until - n.now)::float8
  from {schema}.breaker b
  cross join (select {schema}.clock() as now) n
  where b.name = p_name
    and b.key = p_key
    and b.state <> 'closed'
$$;
