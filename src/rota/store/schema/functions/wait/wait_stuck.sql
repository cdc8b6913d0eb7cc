-- Says why a job that waits for others can never go on by itself; NULL: it can, or waits for none:
--   dead    it waits for a dead job until a person has decided
--   circle  it waits for a job that waits, maybe through others, for this job
--   lane    the job that it waits for stands behind it in its lane, whose places are all held by
--           such jobs
-- It looks at the job by whose name each waits, which is the last job that must end.
-- Locks: none; indexes job_pkey and job_lane.
-- Keeps: M11, a job that waits for ever is named.
create or replace function {schema}.wait_stuck(p_id bigint)
returns text
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_seen bigint[] := '{}';
  v_at bigint := p_id;
  v_next bigint;
  v_why text;
begin
  for hop in 1 .. 100 loop
    select
      n.id,
      case
        when n.status = 'dead' and j.meta #>> '{rota.waits,on_failure}' = 'wait' then 'dead'
        when n.group_key = j.group_key and n.in_lane is null and j.in_lane
          and n.status in ('queued', 'failed', 'waiting')
          and (
            select count(*) >= max(coalesce(b.group_capacity, 1))
            from {schema}.job h
            join {schema}.job b on b.id = case
              when h.waits_for ~ '^job [0-9]{1,18}$' then substr(h.waits_for, 5)::bigint
            end
            where h.group_key = j.group_key
              and h.in_lane
              and h.status || '' = 'waiting'  -- not by an index of the status
              and b.group_key = j.group_key
              and b.in_lane is null
              and b.status in ('queued', 'failed', 'waiting')
          )
          then 'lane'
      end
    into v_next, v_why
    from {schema}.job j
    join {schema}.job n on n.id = case
      when j.waits_for ~ '^job [0-9]{1,18}$' then substr(j.waits_for, 5)::bigint
    end
    where j.id = v_at
      and j.status = 'waiting';
    if not found then
      return null;
    elsif hop = 1 and v_why is not null then
      return v_why;
    elsif v_next = p_id then
      return 'circle';
    elsif v_next = any (v_seen) then
      return null;  -- others wait in a circle
    end if;
    v_seen := v_seen || v_next;
    v_at := v_next;
  end loop;
  return null;
end $$;
