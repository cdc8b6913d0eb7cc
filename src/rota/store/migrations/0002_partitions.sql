-- Why: history and attempts are kept in daily partitions, so that retention is DROP of a table. They are made ahead of time, without waiting for
-- anybody: CREATE … LIKE with a matching CHECK, then ATTACH, which takes no lock that a reader or a finish would wait for.
-- Oldest release that can live with this: 0.1.0.

-- Makes the partition of p_table for the day p_day (UTC) unless it is there. Must run as the owner of the schema.
create function rota.partition_ensure(p_table text, p_day date) returns boolean language plpgsql set search_path = rota, pg_temp as $$
declare
  v_name text := p_table || '_' || to_char(p_day, 'YYYYMMDD');
  v_from text := p_day::text || ' 00:00:00+00';        -- with the offset: a plain date means another day in another session's zone
  v_to text := (p_day + 1)::text || ' 00:00:00+00';
begin
  if to_regclass('rota.' || v_name) is not null then
    return false;
  end if;
  execute format('create table rota.%I (like rota.%I including all, check (finished_at >= %L and finished_at < %L))', v_name, p_table, v_from, v_to);
  execute format('alter table rota.%I attach partition rota.%I for values from (%L) to (%L)', p_table, v_name, v_from, v_to);
  return true;
end $$;

-- Makes the partitions of today and the next p_days days. Returns how many were made. One at a time over all workers: where today's are there and
-- somebody is at it, the days ahead are left to whoever that is.
create function rota.partitions_ensure(p_days int) returns int language plpgsql set search_path = rota, pg_temp as $$
declare
  v_today date := (rota.clock() at time zone 'UTC')::date;
  v_made int := 0;
  v_missing int[] := array(
    select distinct a.ahead
    from generate_series(0, p_days) a(ahead) cross join unnest(array['job_history', 'attempt']) t(name)
    where to_regclass('rota.' || t.name || '_' || to_char(v_today + a.ahead, 'YYYYMMDD')) is null);
begin
  if cardinality(v_missing) = 0 then
    return 0;
  end if;
  if 0 = any (v_missing) then
    perform pg_advisory_xact_lock(1919906913, hashtext('rota'));
  elsif not pg_try_advisory_xact_lock(1919906913, hashtext('rota')) then
    return 0;
  end if;
  for v_ahead in 0 .. p_days loop
    v_made := v_made + rota.partition_ensure('job_history', v_today + v_ahead)::int + rota.partition_ensure('attempt', v_today + v_ahead)::int;
  end loop;
  return v_made;
end $$;

-- Makes today's partitions if nobody has: a caller's transaction cannot repeat what has failed, as a worker does.
create function rota.today_ensure() returns void language plpgsql set search_path = rota, pg_temp as $$
begin
  if to_regclass('rota.job_history_' || to_char(rota.clock() at time zone 'UTC', 'YYYYMMDD')) is null then
    perform rota.partitions_ensure(0);
  end if;
end $$;

select rota.partitions_ensure(7);
