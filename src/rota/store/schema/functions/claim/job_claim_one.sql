-- Claims one job by its id, whatever its run_at, its rate limit and its place in its queue, and
-- returns it. A job that cannot be claimed stays as it is, and its refusal says why: its status,
-- `paused` (its queue is), `locked` (another transaction has it), `lane ID` (that job stands before
-- it in its lane), or the full cap, as in waits_for. No row: there is no live job with this id.
-- Rows: {claimed}.
-- Locks: the row, with SKIP LOCKED; index job_pkey. Then what job_admit locks.
-- Keeps: M30, no job goes to two workers; M31, a claim is a lease.
create or replace function {schema}.job_claim_one(
  p_id bigint,
  p_worker text,
  p_types text[],
  p_leases interval[],
  p_records boolean[]
)
returns setof {schema}.claimed_job
language plpgsql
as $$
declare
  v_job {schema}.job;
  v_row {schema}.claimed_job;
  v_ids bigint[];
  v_capped_types text[];
  v_capped_queues text[];
begin
  select j.* into v_job from {schema}.job j where j.id = p_id for update skip locked;
  if v_job.id is null then
    select j.* into v_job from {schema}.job j where j.id = p_id;
    if not found then
      return;
    end if;
    v_row.refusal := 'locked';
  elsif v_job.status = 'waiting' then
    v_row.refusal := coalesce({schema}.held_up_by(p_id), 'locked');
  elsif v_job.status not in ('queued', 'failed') then
    v_row.refusal := v_job.status;
  elsif {schema}.paused_queues(array[v_job.queue]) <> '{}' then
    v_row.refusal := 'paused';
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
      from {schema}.job_admit(array[p_id], null::interval) a;
      if v_ids = '{}' then
        v_row.refusal := coalesce({schema}.held_up_by(p_id), 'locked');
        raise exception using errcode = 'RT002';  -- the job is not parked, either
      end if;
    exception when sqlstate 'RT002' then
      null;
    end;
  end if;
  if v_row.refusal is not null then
    v_row.id := v_job.id;
    v_row.queue := v_job.queue;
    return next v_row;
    return;
  end if;
  return query
  select t.*
  from {schema}.job_take(
    array[p_id], p_worker, p_types, p_leases, p_records, v_capped_types, v_capped_queues,
    null::jsonb
  ) t;
end $$;
