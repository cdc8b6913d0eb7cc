-- Creates the partitions of today and of the next p_days days. Returns how many it created. If
-- today's exist and another worker is creating, the call leaves the days ahead to that worker.
-- Locks: SHARE UPDATE EXCLUSIVE on the parents, which readers and finishes do not wait for.
-- Keeps: M13; a finish always finds its partition.
create or replace function {schema}.partitions_ensure(p_days int)
returns int
language plpgsql
as $$
declare
  v_today date := ({schema}.clock() at time zone 'UTC')::date;
  v_made int := 0;
  v_missing int[] := array(
    select distinct a.ahead
    from generate_series(0, p_days) a(ahead)
    cross join unnest(array['job_history', 'attempt']) t(name)
    where to_regclass(
      '{schema}.' || t.name || '_' || to_char(v_today + a.ahead, 'YYYYMMDD')
    ) is null
  );
begin
  if cardinality(v_missing) = 0 then
    return 0;
  end if;
  if 0 = any (v_missing) then
    perform pg_advisory_xact_lock(1919906913, hashtext('{schema}'));
  elsif not pg_try_advisory_xact_lock(1919906913, hashtext('{schema}')) then
    return 0;
  end if;
  for v_ahead in 0 .. p_days loop
    v_made := v_made
      + {schema}.partition_ensure('job_history'::text, v_today + v_ahead)::int
      + {schema}.partition_ensure('attempt'::text, v_today + v_ahead)::int;
  end loop;
  return v_made;
end $$;
