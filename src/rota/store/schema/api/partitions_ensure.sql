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
  v_missing int := 0;                            -- the first day ahead that lacks a partition
  v_made int := 0;
begin
  -- Not by a query: whoever ends a job in a transaction of its own asks this each time.
  while to_regclass('{schema}.job_history_' || to_char(v_today + v_missing, 'YYYYMMDD')) is not null
    and to_regclass('{schema}.attempt_' || to_char(v_today + v_missing, 'YYYYMMDD')) is not null
  loop
    if v_missing = p_days then
      return 0;
    end if;
    v_missing := v_missing + 1;
  end loop;
  if v_missing = 0 then
    perform pg_advisory_xact_lock(1919906913, hashtext('{schema}'));
  elsif not pg_try_advisory_xact_lock(1919906913, hashtext('{schema}')) then
    return 0;
  end if;
  for v_ahead in v_missing .. p_days loop
    v_made := v_made
      + {schema}.partition_ensure('job_history'::text, v_today + v_ahead)::int
      + {schema}.partition_ensure('attempt'::text, v_today + v_ahead)::int;
  end loop;
  return v_made;
end $$;
