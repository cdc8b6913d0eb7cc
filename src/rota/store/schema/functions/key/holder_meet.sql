-- Does to the holder of a key what the producer of a second job asks (p_how), and returns the
-- holder, with what was changed of it:
--   join, raise  nothing
--   replace      a holder that waits becomes what the new job would be. It keeps its id, its queue
--                and, unless a time is asked for, its place; of two priorities the higher counts
--   postpone     a holder that waits becomes due later, at the time that is asked for; all else
--                stays, but its expiry moves along, because it is counted from run_at
-- A holder waits that is queued, or parked for its lane or a cap; if its lane or time changes, it
-- is queued again and gives up its place in the lane. A holder that has begun before, and was
-- snoozed, is not changed: it stands for its own payload. No row: the key was freed or went to
-- another job in the meantime; the caller tries again. p_common has the columns of the new job as
-- in jobs_insert; expires_at may stand for expires_s.
-- Locks: the holder, if it is queued and may be changed, or must not start before this transaction
--   has ended (holder_keep). A worker that is claiming it is waited for: it runs then.
-- Keeps: M51, a holder that has begun is not changed.
create or replace function {schema}.holder_meet(
  p_how text,
  p_job_type text,
  p_key text,
  p_group_key text,
  p_payload jsonb,
  p_common jsonb
)
returns table (id bigint, status text, change text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_id bigint;
  v_status text;
  v_is_new boolean := false;
  v_common record;
  v_is_timed boolean;
  v_group_key text;
  v_moves boolean;
  v_asked timestamptz;
  v_queue text;
  v_run_at timestamptz;
begin
  select h.id, h.status into v_id, v_status
  from {schema}.keys_held(array[p_job_type], array[p_key]) h;
  if v_status in ('queued', 'waiting') and p_how in ('replace', 'postpone') then
    -- Not FOR UPDATE: producers that only keep the job from being claimed need not wait.
    select j.started_at is null, j.group_key into v_is_new, v_group_key
    from {schema}.job j
    where j.id = v_id
    for no key update;
    select h.id, h.status into id, v_status
    from {schema}.keys_held(array[p_job_type], array[p_key]) h;
    if id is distinct from v_id then
      return;
    end if;
  end if;
  if v_id is not null and not {schema}.holder_keep(v_id, p_job_type, p_key) then
    return;
  end if;
  if v_status in ('queued', 'waiting') and v_is_new then
    select * into v_common
    from jsonb_to_record(p_common) c(
      payload_version smallint, priority smallint,
      run_at timestamptz, delay_s float8, expires_at timestamptz, expires_s float8,
      max_attempts int, timeout interval, group_capacity smallint, meta jsonb
    );
    v_is_timed := v_common.run_at is not null or v_common.delay_s is not null;
    v_asked := greatest(
      {schema}.clock(),
      coalesce(
        v_common.run_at,
        {schema}.clock() + coalesce(v_common.delay_s, 0) * interval '1 second'
      )
    );
    v_moves := v_is_timed or p_group_key is distinct from v_group_key;
    if p_how = 'replace' then
      perform {schema}.job_refuse(k.refusal)
      from {schema}.key_refusal(
        p_job_type, false, p_group_key is null, coalesce(v_common.meta, '{}')
      ) k(refusal)
      where k.refusal is not null;
      change := 'replaced';
      update {schema}.job j
      set
        payload = p_payload,
        payload_version = v_common.payload_version,
        priority = greatest(j.priority, v_common.priority),
        -- If its priority rises, or it was parked, workers may have passed its place.
        run_at = case
          when v_is_timed
            or v_common.priority > j.priority
            or v_moves and j.status = 'waiting'
            then v_asked
          else least(j.run_at, v_asked)
        end,
        expires_at = coalesce(
          v_common.expires_at,
          v_asked + v_common.expires_s * interval '1 second',
          v_asked + (
            select t.expires
            from {schema}.job_type t
            where t.name = {schema}.canonical_type(p_job_type)
          )
        ),
        max_attempts = coalesce(v_common.max_attempts, j.max_attempts),
        timeout = coalesce(v_common.timeout, j.timeout),
        meta = v_common.meta,
        group_key = p_group_key,
        group_capacity = case when p_group_key is not null then v_common.group_capacity end,
        status = case when v_moves then 'queued' else j.status end,
        in_lane = case when not v_moves then j.in_lane end,
        waits_for = case when not v_moves then j.waits_for end,
        waits_since = case when not v_moves then j.waits_since end,
        -- They are about the payload that was there.
        progress = null,
        mismatched_releases = null,
        updated_at = {schema}.clock()
      where j.id = v_id
      returning j.queue, j.run_at, j.status into v_queue, v_run_at, v_status;
    else
      change := 'postponed';
      update {schema}.job j
      set
        run_at = greatest(j.run_at, v_asked),
        expires_at = j.expires_at + (greatest(j.run_at, v_asked) - j.run_at),
        status = 'queued',
        in_lane = null,
        waits_for = null,
        waits_since = null,
        updated_at = {schema}.clock()
      where j.id = v_id
      returning j.queue, j.run_at, j.status into v_queue, v_run_at, v_status;
    end if;
    if v_status = 'queued' and v_run_at <= {schema}.clock() then
      perform {schema}.wake_up(array[v_queue], 1);
    end if;
  end if;
  if v_id is not null then
    id := v_id;
    status := v_status;
    return next;
  end if;
end $$;
revoke execute on function {schema}.holder_meet(text, text, text, text, jsonb, jsonb) from public;
