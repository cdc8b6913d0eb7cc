-- Adds to the figures what ended more than half a minute ago, up to an hour of it, if the figures
-- are a minute old. Returns whether there is more. Rota's own statements end within half a minute.
-- Five minutes after an hour, or later, it counts the hour again as a whole, because a transaction
-- may have written its rows late. After a clock that was ahead was set right, hours to come are
-- counted again from the current hour on. One worker at a time rolls up. It writes how far it got
-- in the same transaction, so each row is counted once, whatever is killed.
-- Locks: the row of stat_rollup, with SKIP LOCKED.
-- Keeps: M85, each row counted once, and no finish pays for it.
create or replace function {schema}.stats_roll_up()
returns boolean
language plpgsql
as $$
declare
  v_closed timestamptz := {schema}.clock() - interval '30 seconds';
  v_from timestamptz;
  v_over timestamptz;                            -- when the hour ends that is counted again next
  v_to timestamptz;
begin
  select f.complete_to into v_from
  from {schema}.stat_rollup f
  where f.complete_to <= v_closed - interval '30 seconds'
    or f.complete_to > {schema}.clock()
  for update skip locked;
  if not found then
    return false;
  end if;
  if v_from > {schema}.clock() then
    v_from := date_trunc('hour', v_closed, 'UTC');
    delete from {schema}.stat_hour s where s.hour >= v_from;
  end if;
  v_over := date_trunc('hour', v_from - interval '5 minutes', 'UTC') + interval '1 hour';
  v_to := least(v_closed, v_over + interval '5 minutes');
  if v_to = v_over + interval '5 minutes' then
    v_from := v_over - interval '1 hour';
  end if;
  if v_from < v_over then
    perform {schema}.stats_count(v_from, least(v_to, v_over));
  end if;
  if v_to > v_over then
    perform {schema}.stats_count(greatest(v_from, v_over), v_to);
  end if;
  update {schema}.stat_rollup set complete_to = v_to;
  return v_to < v_closed;
end $$;
