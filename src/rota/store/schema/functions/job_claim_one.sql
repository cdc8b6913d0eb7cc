-- Claims one job by its id, whatever its run_at and its place in its queue, and returns what only a
-- claim knows of it; the worker reads the rest. A job that cannot be claimed stays as it is, and
-- the refusal says why: its status, `paused` (its queue is), `locked` (another transaction has it),
-- `lane ID` (that job stands before it in its lane), or the cap that is full, as in waits_for. No
-- row: no job that is not over has this id.
-- Locks: the row, with SKIP LOCKED; index job_pkey. Then what job_admit locks.
-- Keeps: M30, no job goes to two workers; M31, a claim is a lease.
create or replace function {schema}.job_claim_one(
  p_id bigint,
  p_worker text,
  p_types text[],
  p_leases interval[],
  p_records boolean[]
)
returns table (
  claims int,
  max_attempts int,
  start_recorded boolean,
  suspected boolean,
  capped boolean,
  refusal text
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_job {schema}.job;
  v_ids bigint[];
  v_refusal text;
  v_capped_types text[];
  v_capped_queues text[];
begin
  select j.* into v_job from {schema}.job j where j.id = p_id for update skip locked;
  if v_job.id is null then
    return query
    select
      null::int, null::int, null::boolean, null::boolean, null::boolean,
      'locked'::text
    from {schema}.job j
    where j.id = p_id;
  elsif v_job.status = 'waiting' then
    return query
    select
      null::int, null::int, null::boolean, null::boolean, null::boolean,
      {schema}.held_up_by(p_id);
  elsif v_job.status not in ('queued', 'failed') then
    return query
    select null::int, null::int, null::boolean, null::boolean, null::boolean, v_job.status;
  elsif {schema}.paused_queues(array[v_job.queue]) <> '{}' then
    return query
    select null::int, null::int, null::boolean, null::boolean, null::boolean, 'paused'::text;
  else
    begin
      -- Its lane decides about jobs that are due.
      update {schema}.job j
      set run_at = {schema}.clock()
      where j.id = p_id
        and j.run_at > {schema}.clock()
        and j.group_key is not null
        and j.in_lane is null;
      select a.ids, a.capped_types, a.capped_queues
      into v_ids, v_capped_types, v_capped_queues
      from {schema}.job_admit(array[p_id]) a;
      if v_ids = '{}' then
        v_refusal := {schema}.held_up_by(p_id);
        raise exception using errcode = 'RT002';  -- the job is not parked, either
      end if;
    exception when sqlstate 'RT002' then
      return query
      select null::int, null::int, null::boolean, null::boolean, null::boolean, v_refusal;
      return;
    end;
    return query
    select t.claims, t.max_attempts, t.start_recorded, t.suspected, t.capped, t.refusal
    from {schema}.job_take(
      array[p_id], p_worker, p_types, p_leases, p_records, v_capped_types, v_capped_queues
    ) t;
  end if;
end $$;
