-- Locks a stripe of the keys of limits until the transaction ends; returns whether it did within
-- 100 ms. Whoever needs several takes them in ascending order. The keys must be read by a later
-- statement, whose snapshot is taken after the lock.
-- Locks: an advisory lock (1919906914, the stripe).
-- Keeps: M62, two reservations never build on the same state.
create or replace function {schema}.limit_lock(p_stripe int)
returns boolean
language plpgsql
set lock_timeout = '100ms' set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise feature_not_supported using
      message = 'a rate limit can be used in a transaction with READ COMMITTED only',
      hint = 'Use another connection, for example that of app.limit(…).take().';
  end if;
  perform pg_advisory_xact_lock(1919906914, p_stripe);
  return true;
exception
  when lock_not_available then
    return false;
end $$;
