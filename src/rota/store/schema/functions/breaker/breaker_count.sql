-- Counts failures of an endpoint (for breaker_record): the breaker opens at p_failures within
-- p_within. Returns 'opened' if it did, otherwise NULL. It counts nothing while the breaker is not
-- closed, and no attempt that began before the breaker was last closed.
-- Locks: the row of the breaker; index breaker_pkey. None while the breaker is not closed.
create or replace function {schema}.breaker_count(
  p_name text,
  p_key text,
  p_failed_after_s float8[],
  p_failures int,
  p_within interval,
  p_open_for interval,
  p_reason text
)
returns text
language plpgsql
as $$
declare
  v_breaker {schema}.breaker;
  v_failed_at timestamptz[];
  v_now timestamptz;
begin
  if exists (
    select
    from {schema}.breaker b
    where b.name = p_name
      and b.key = p_key
      and b.state <> 'closed'
  ) then
    return null;
  end if;
  loop
    insert into {schema}.breaker (name, key)
    values (p_name, p_key)
    on conflict do nothing;
    select b.*
    into v_breaker
    from {schema}.breaker b
    where b.name = p_name
      and b.key = p_key
    for no key update;
    exit when found;  -- otherwise upkeep has just deleted it
  end loop;
  if v_breaker.state <> 'closed' then
    return null;
  end if;
  v_now := {schema}.clock();  -- after the wait for the lock
  v_failed_at := array(
    select failed.at
    from (
      select unnest(v_breaker.failed_at)
      union all
      select v_now
      from unnest(p_failed_after_s) began(ago_s)
      where (v_now - began.ago_s * interval '1 second' >= v_breaker.closed_at) is not false
    ) failed(at)
    where failed.at > v_now - p_within
    order by failed.at desc
    limit p_failures
  );
  update {schema}.breaker b
  set
    failed_at = case when n.opens then '{}' else v_failed_at end,
    state = case when n.opens then 'open' else 'closed' end,
    openings = case when n.opens then 1 else 0 end,
    open_until = case when n.opens then v_now + p_open_for end,
    opened_at = case when n.opens then v_now end,
    forget_at = case when not n.opens then greatest(v_now + p_within, b.forget_at) end,
    reason = {schema}.one_line(p_reason, 500),
    changed_at = v_now,
    changed_by = null
  from (select cardinality(v_failed_at) >= p_failures as opens) n
  where b.name = p_name
    and b.key = p_key;
  return case when cardinality(v_failed_at) >= p_failures then 'opened' end;
end $$;
