-- Says which parts of upkeep have something to do. p_asked has the names of the parts that ask,
-- each with the time from which on it reads its index. Returns JSON: {"now": clock, "time": the
-- server's clock in seconds, which no test moves, "moved_s": by how many seconds leases were moved
-- along with it, "due": [names], "tick_in_s": seconds until the next tick of a schedule, if the
-- scheduler asks, "reap_in_s": until a lease has ended, if the reaper asks and one ends within
-- five}. NULL: a table is locked, for which a claim must not wait.
-- Locks: none; it reads the first entries of indexes.
-- Keeps: M3, one statement of one worker asks for all parts; each reads from where it read last.
create or replace function {schema}.upkeep_due(p_asked jsonb)
returns text
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan set lock_timeout = '100ms'
as $$
declare
  v_now timestamptz := {schema}.clock();
  v_due text[];
  v_kinds text[];                                -- of what jobs wait for
  v_lease_end timestamptz;
  v_tick_at timestamptz;
begin
  if p_asked ? 'reaper' then
    v_lease_end := (
      select j.locked_until
      from {schema}.job j
      where j.status = 'running'
        and j.locked_until >= (p_asked ->> 'reaper')::timestamptz
        and j.locked_until < v_now + interval '5 seconds'
      order by j.locked_until
      limit 1
    );
  end if;
  v_kinds := array(
    select kind
    from unnest(array['breaker', 'job', 'limit', 'queue', 'type']) kind
    where exists (
      select from {schema}.job j
      where j.waits_for > kind || ' '
        and j.waits_for < kind || '!'  -- the character after a blank
        and j.status <> 'running'
    )
  );
  v_due := array(
    select part.name
    from (
      values
        ('reaper', v_lease_end < v_now),
        ('expirer', p_asked ? 'expirer' and exists (
          select from {schema}.job j
          where j.expires_at is not null
            and j.status in ('queued', 'failed', 'waiting')
            and j.expires_at >= (p_asked ->> 'expirer')::timestamptz
            and j.expires_at <= v_now
        )),
        ('group sweeper', p_asked ? 'group sweeper' and (
          exists (select from {schema}.breaker b where b.state <> 'closed')
          or exists (select from {schema}.queue q where q.max_running is not null)
          or exists (select from {schema}.job_type t where t.max_running is not null)
          or v_kinds && array['breaker', 'queue', 'type']
          or exists (
            select from {schema}.job j
            where j.status = 'waiting'
              and j.group_key > ''
              -- It only makes job_lane look dearer than job_put_off to the planner.
              and (j.status, j.group_key) > ('waiting', '')
          )
        )),
        ('wait sweeper', p_asked ? 'wait sweeper' and 'job' = any (v_kinds)),
        ('limit planner', p_asked ? 'limit planner' and 'limit' = any (v_kinds)),
        ('batch folder', p_asked ? 'batch folder' and (
          exists (select from {schema}.batch_delta)
          or exists (
            select from {schema}.batch b
            where b.then_error is not null
              and b.updated_at < v_now - interval '10 seconds'
          )
          or exists (
            select from {schema}.batch b
            where b.outcome is null
              and b.updated_at < v_now - interval '10 minutes'
          )
        )),
        ('figures', p_asked ? 'figures' and exists (
          select from {schema}.stat_rollup f
          where f.complete_to <= v_now - interval '1 minute'
            or f.complete_to > v_now
        ))
    ) part(name, is_due)
    where part.is_due
  );
  if p_asked ? 'scheduler' and not {schema}.is_paused() then
    v_tick_at := (
      select s.next_run_at
      from {schema}.schedule s
      where s.next_run_at > (p_asked ->> 'scheduler')::timestamptz
        and s.cron is not null
        and s.paused_at is null
        and s.disabled_at is null
      order by s.next_run_at
      limit 1
    );
    if v_tick_at <= v_now or exists (
      select from {schema}.schedule s
      where s.next_run_at is null
        and s.cron is not null
        and s.paused_at is null
        and s.disabled_at is null
    )
    then
      v_due := v_due || 'scheduler'::text;
    end if;
  end if;
  return jsonb_build_object(
    'now', v_now,
    'time', extract(epoch from statement_timestamp()),
    'moved_s', (select n.clock_moved_s from {schema}.installation n),
    'due', v_due,
    'tick_in_s', extract(epoch from v_tick_at - v_now),
    'reap_in_s', case
      when v_lease_end >= v_now then extract(epoch from v_lease_end - v_now) + 0.01
    end
  )::text;
exception when lock_not_available then
  return null;
end $$;
