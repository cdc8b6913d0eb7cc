-- Cancels jobs. A waiting job ends at once. For a running job the request is kept and its worker is
-- woken; when the attempt ends without success, the job is cancelled in the same transaction. The
-- first reason stays. Returns for each id the answer (cancelled, requested, refused, not found).
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of their keys.
-- Keeps: M87; M51, a cancelled job frees its key.
create or replace function {schema}.job_cancel(
  p_ids bigint[],
  p_why text default null,
  p_by text default null
)
returns table (id bigint, answer text, status text)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_why text := {schema}.one_line(p_why, 500);
  v_waiting bigint[];
  v_workers text[];
begin
  perform {schema}.partitions_ensure(0);
  -- The strongest lock that the end needs, at once: a producer that keeps the job from starting may
  -- change it later, and the two would wait for each other.
  perform from {schema}.job j
  where j.id = any (p_ids)
  order by j.id
  for update;
  with asked as (
    update {schema}.job j
    set
      cancel_requested_at = {schema}.clock(),
      cancel_reason = v_why
    where j.id = any (p_ids)
      and j.cancel_requested_at is null
      and j.status <> 'dead'
    returning j.id, j.locked_by, j.status as was
  ),
  logged as (
    insert into {schema}.action (verb, job, by, why, detail)
    select
      'cancel',
      a.id,
      coalesce({schema}.one_line(p_by, 200), session_user),
      v_why,
      jsonb_strip_nulls(jsonb_build_object('was', a.was, 'worker', a.locked_by))
    from asked a
    order by a.id
  )
  select
    array_agg(a.id) filter (where a.locked_by is null),
    array_agg(distinct a.locked_by) filter (where a.locked_by is not null)
  into v_waiting, v_workers
  from asked a;
  v_waiting := array(select {schema}.job_to_history(v_waiting, 'cancelled'::text));
  perform pg_notify({schema}.channel_of(worker), '') from unnest(v_workers) worker;
  return query
  select
    a.id,
    case
      when a.id = any (v_waiting) then 'cancelled'
      when a.status = 'running' then 'requested'
      else a.answer
    end,
    a.status
  from {schema}.job_answers(p_ids, '{}'::bigint[], null::text) a;
end $$;
revoke execute on function {schema}.job_cancel(bigint[], text, text) from public;
