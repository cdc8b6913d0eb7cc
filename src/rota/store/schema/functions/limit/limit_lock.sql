-- Locks a key of a limit until the transaction ends. Raises if it cannot within 5 s. The key must
-- be read by a later statement, whose snapshot is taken after the lock.
-- Locks: the stripe of the key.
-- Keeps: M62, two starts never build on the same state.
create or replace function {schema}.limit_lock(p_name text, p_key text)
returns void
language plpgsql
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise feature_not_supported using
      message = 'a rate limit can be used in a transaction with READ COMMITTED only',
      hint = 'Use another connection, for example that of app.limits.take(…).';
  end if;
  if {schema}.stripes_lock(array[{schema}.room_name('limit'::text, p_name, p_key)], 5000) <> '{}'
  then
    raise lock_not_available using
      message = format('rate limit %L is locked by another transaction', p_name);
  end if;
end $$;
