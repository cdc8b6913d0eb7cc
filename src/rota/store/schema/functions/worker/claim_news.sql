-- Returns what a worker must know besides its jobs: requests to look back that are newer than
-- p_asked_since (one per queue); with p_probe the priorities in use that are not in p_known (queue
-- to priorities), and in how many seconds a job is due or a pause ends next, if within five; with
-- p_upkeep what upkeep_due answers. NULL: nothing.
create or replace function {schema}.claim_news(
  p_queues text[],
  p_asked_since timestamptz[],
  p_probe boolean,
  p_known jsonb,
  p_upkeep jsonb
)
returns text
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_look_back jsonb;
  v_priorities jsonb;
  v_next_at timestamptz;
  v_upkeep jsonb;
begin
  select jsonb_agg(jsonb_build_array(q.name, q.look_back_to, q.look_back_asked_at))
  into v_look_back
  from unnest(p_queues, p_asked_since) k(queue, since)
  join {schema}.queue q on q.name = k.queue and q.look_back_asked_at > k.since;
  if p_probe then
    select jsonb_agg(jsonb_build_array(k.queue, found.priority)) into v_priorities
    from jsonb_each(p_known) k(queue, known)
    cross join lateral {schema}.unknown_priorities(
      k.queue,
      array(select p::smallint from jsonb_array_elements_text(k.known) p)
    ) found(priority);
    select min(next.run_at) into v_next_at
    from jsonb_each(p_known) k(queue, known)
    cross join jsonb_array_elements_text(k.known) p(priority)
    cross join lateral (
      select j.run_at
      from {schema}.job j
      where j.queue = k.queue
        and j.priority = p.priority::smallint
        and j.status in ('queued', 'failed')
        and j.run_at > {schema}.clock()
        and j.run_at < {schema}.clock() + interval '5 seconds'
      order by j.run_at
      limit 1
    ) next;
    select least(v_next_at, min(pause.paused_until)) into v_next_at
    from (
      select q.paused_until
      from jsonb_object_keys(p_known) k(queue)
      join {schema}.queue q on q.name = k.queue
      union all
      select i.paused_until
      from {schema}.installation i
    ) pause
    where pause.paused_until > {schema}.clock()
      and pause.paused_until < {schema}.clock() + interval '5 seconds';
  end if;
  if p_upkeep is not null then
    v_upkeep := {schema}.upkeep_due(p_upkeep)::jsonb;
  end if;
  if v_look_back is null and v_priorities is null and v_next_at is null and v_upkeep is null then
    return null;
  end if;
  return jsonb_build_object(
    'look_back', coalesce(v_look_back, '[]'),
    'priorities', coalesce(v_priorities, '[]'),
    'next_in_s', extract(epoch from v_next_at - {schema}.clock()),
    'upkeep', v_upkeep
  )::text;
end $$;
