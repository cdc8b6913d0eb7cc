-- Locks the stripes of these keys ('group KEY', 'limit NAME …', 'type NAME', 'queue NAME') until
-- the transaction ends, in ascending order, and returns the keys whose stripes it did not get. It
-- waits at most p_wait_ms for one stripe, and then for none: an endless transaction blocks only its
-- own.
--
-- The caller decides in a later statement, whose snapshot is from after the lock; so it needs READ
-- COMMITTED, and under another level it gets no stripe.
-- Locks: advisory locks, 256 of each schema. A caller has locked its own rows before; afterwards it
--   touches other rows with SKIP LOCKED only. So nobody who holds a stripe waits for a row.
-- Keeps: M60, two decisions about one lane or one cap never happen side by side.
create or replace function {schema}.stripes_lock(p_keys text[], p_wait_ms int)
returns text[]
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  -- The schema's own numbers; the last eight bits are the stripe.
  v_schema int := hashtext('{schema}') & ~255;
  v_before text := current_setting('lock_timeout');
  v_stripe int;
  v_missing int[];
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    return p_keys;
  end if;
  for v_stripe in
    select distinct hashtext(k.key) & 255
    from unnest(p_keys) k(key)
    order by 1
  loop
    continue when pg_try_advisory_xact_lock(1919906914, v_schema | v_stripe);
    if p_wait_ms = 0 or v_missing is not null then
      v_missing := v_missing || v_stripe;
      continue;
    end if;
    begin
      perform set_config('lock_timeout', p_wait_ms || 'ms', true);
      perform pg_advisory_xact_lock(1919906914, v_schema | v_stripe);
      perform set_config('lock_timeout', v_before, true);
    exception when lock_not_available or deadlock_detected then
      v_missing := v_missing || v_stripe;
    end;
  end loop;
  if v_missing is null then
    return '{}';
  end if;
  return array(
    select k.key
    from unnest(p_keys) k(key)
    where hashtext(k.key) & 255 = any (v_missing)
  );
end $$;
