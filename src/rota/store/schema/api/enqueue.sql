-- Enqueues one job. Returns its id or, when its key is taken, the id and status of the job that
-- holds the key. on_duplicate says what happens to that job; NULL: what the type declares.
create or replace function {schema}.enqueue(
  job_type text,
  payload jsonb default '{}',
  queue text default null,
  priority int default null,
  run_at timestamptz default null,
  expires_at timestamptz default null,
  max_attempts int default null,
  idempotency_key text default null,
  meta jsonb default null,
  payload_version int default null,
  timeout interval default null,
  on_duplicate text default null,
  group_key text default null,
  group_capacity int default null
)
returns table (id bigint, created boolean, status text, change text)
language plpgsql security definer
as $$
declare
  v_capacity int := case
    when enqueue.group_key is not null
      then coalesce(
        enqueue.group_capacity,
        (
          select t.group_capacity
          from {schema}.job_type t
          where t.name = {schema}.canonical_type(enqueue.job_type)
        )
      )
  end;
  v_how text := coalesce(
    enqueue.on_duplicate,
    (
      select t.on_duplicate
      from {schema}.job_type t
      where t.name = {schema}.canonical_type(enqueue.job_type)
        and enqueue.idempotency_key is not null
    ),
    'keep'
  );
begin
  if v_how not in ('keep', 'replace', 'postpone', 'raise') then
    raise exception
      'rota.enqueue: on_duplicate must be keep, replace, postpone or raise, not %', v_how
      using errcode = '22023';
  elsif v_how = 'postpone' and enqueue.idempotency_key is not null and enqueue.run_at is null then
    raise exception 'rota.enqueue: on_duplicate is postpone, so run_at must say until when'
      using errcode = '22023';
  end if;
  for attempt in 1 .. 20 loop
    return query
    insert into {schema}.job (
      job_type, payload, queue, priority,
      run_at, expires_at, max_attempts,
      idempotency_key, meta, payload_version,
      timeout, group_key, group_capacity
    )
    values (
      enqueue.job_type, coalesce(enqueue.payload, '{}'), enqueue.queue, enqueue.priority,
      coalesce(enqueue.run_at, {schema}.clock()), enqueue.expires_at, enqueue.max_attempts,
      enqueue.idempotency_key, enqueue.meta, enqueue.payload_version,
      enqueue.timeout, enqueue.group_key, v_capacity
    )
    returning job.id, true, job.status, null::text;
    if found then
      return;
    end if;
    select m.id, false, m.status, m.change into id, created, status, change
    from {schema}.holder_meet(
      v_how,
      enqueue.job_type,
      enqueue.idempotency_key,
      enqueue.group_key,
      coalesce(enqueue.payload, '{}'),
      jsonb_build_object(
        'payload_version', enqueue.payload_version,
        'priority', enqueue.priority,
        'run_at', enqueue.run_at,
        'expires_at', enqueue.expires_at,
        'max_attempts', enqueue.max_attempts,
        'timeout', enqueue.timeout,
        'group_capacity', v_capacity,
        'meta', enqueue.meta
      )
    ) m;
    if found and v_how = 'raise' then
      raise exception
        'rota.enqueue: job % (%) has the idempotency key % of job type %; nothing was inserted',
        id, status, enqueue.idempotency_key, enqueue.job_type
        using errcode = 'unique_violation';
    elsif found then
      return next;
      return;
    end if;
    -- The key was freed between the INSERT and this look-up: try again.
  end loop;
  raise exception
    'the idempotency key % of job type % was taken and freed again and again; '
      'nothing was inserted, try again',
    enqueue.idempotency_key, enqueue.job_type
    using errcode = '40001';
end $$;
revoke execute on function {schema}.enqueue(
  text, jsonb, text, int, timestamptz, timestamptz, int, text, jsonb, int, interval, text, text, int
) from public;
