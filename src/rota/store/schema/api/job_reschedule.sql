-- Moves queued, failed and waiting jobs to another time (p_run_at, or p_delay from now; in the past
-- means now), priority or queue. A job that is due afterwards is due from now, at the end of its
-- line, where workers find it at once. A new job that moves to later gives up its place in its
-- lane. Its expiry moves along: the job has as long to start as from its run_at before or, if it
-- was claimed before, from its creation. The log has the old and the new values.
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: M87; M30, a job that a worker has just claimed is refused.
create or replace function {schema}.job_reschedule(
  p_ids bigint[],
  p_why text default null,
  p_by text default null,
  p_run_at timestamptz default null,
  p_delay interval default null,
  p_priority int default null,
  p_queue text default null
)
returns table (id bigint, answer text, status text)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_wrong text := case
    when num_nonnulls(p_run_at, p_delay, p_priority, p_queue) = 0
      then 'give a time, a priority or a queue'
    when num_nonnulls(p_run_at, p_delay) > 1
      then 'give p_run_at or p_delay, not both'
    when p_run_at >= '9000-01-01 00:00:00+00'
      then format('p_run_at must lie before the year 9000, not at %s', p_run_at)
    when p_delay not between interval '0' and interval '36525 days'
      then format('p_delay must be from 0 to a hundred years, not %s', p_delay)
    when p_priority not between -100 and 100
      then format('p_priority must be from -100 to 100, not %s', p_priority)
    when length(p_queue) not between 1 and 100
      then format('p_queue must be 1 to 100 characters, not %s', length(p_queue))
  end;
  v_asked timestamptz := coalesce(p_run_at, {schema}.clock() + p_delay);
  v_run_at timestamptz := greatest({schema}.clock(), v_asked);
  v_done bigint[];
begin
  if v_wrong is not null then
    raise exception 'rota.job_reschedule: %; nothing was changed', v_wrong
      using errcode = 'invalid_parameter_value';
  end if;
  -- By the primary key alone, as in job_take_over. Not FOR UPDATE: two producers that keep the job
  -- from starting would wait for each other.
  v_done := array(
    select mine.id
    from (
      select j.id, j.status
      from {schema}.job j
      where j.id = any (p_ids)
      order by j.id
      for no key update
    ) mine
    where mine.status in ('queued', 'failed', 'waiting')
  );
  with old as materialized (
    select
      j.id, j.status, j.run_at, j.expires_at, j.priority, j.queue,
      {schema}.expires_anew(j.expires_at, j.run_at, j.created_at, j.claims) - {schema}.clock()
        as expires
    from {schema}.job j
    where j.id = any (v_done)
  ),
  moved as (
    update {schema}.job j
    set
      run_at = case
        when v_asked is not null then v_run_at
        else greatest(j.run_at, {schema}.clock())
      end,
      expires_at = case when v_asked is not null then v_run_at + o.expires else j.expires_at end,
      priority = coalesce(p_priority, j.priority),
      queue = coalesce(p_queue, j.queue),
      status = case when j.status = 'waiting' then 'queued' else j.status end,
      -- A job that has not run yet lets the rest of its lane pass.
      in_lane = case when j.status = 'failed' or v_run_at <= {schema}.clock() then j.in_lane end,
      -- A move lets no other release read the payload.
      waits_for = case when j.waits_for like 'payload %' then j.waits_for end,
      waits_since = case when j.waits_for like 'payload %' then j.waits_since end,
      updated_at = {schema}.clock()
    from old o
    where j.id = o.id
    returning
      j.id,
      o.status as was,
      jsonb_build_object(
        'run_at', o.run_at, 'expires_at', o.expires_at, 'priority', o.priority, 'queue', o.queue
      ) as was_at,
      jsonb_build_object(
        'run_at', j.run_at, 'expires_at', j.expires_at, 'priority', j.priority, 'queue', j.queue
      ) as now_at
  )
  insert into {schema}.action (verb, job, by, why, detail)
  select
    'reschedule',
    m.id,
    coalesce({schema}.one_line(p_by, 200), session_user),
    {schema}.one_line(p_why, 500),
    jsonb_build_object('was', m.was, 'from', changed.before, 'to', changed.after)
  from moved m
  cross join lateral (
    select
      coalesce(jsonb_object_agg(b.key, b.value), '{}') as before,
      coalesce(jsonb_object_agg(b.key, a.value), '{}') as after
    from jsonb_each(m.was_at) b
    join jsonb_each(m.now_at) a on a.key = b.key
    where a.value <> b.value
  ) changed
  order by m.id;
  perform {schema}.wake_up(array_agg(j.queue), count(*)::int)
  from {schema}.job j
  where j.id = any (v_done)
    and j.run_at <= {schema}.clock() + interval '5 seconds';
  return query
  select a.id, a.answer, a.status
  from {schema}.job_answers(p_ids, v_done, 'done'::text) a;
end $$;
revoke execute on function {schema}.job_reschedule(
  bigint[], text, text, timestamptz, interval, int, text
) from public;
