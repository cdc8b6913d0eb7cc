-- Enqueues one job, and answers as Python's `enqueue` does: with its id or, when its key is taken,
-- with the id and status of the job that holds the key.
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
  timeout interval default null
)
returns table (id bigint, created boolean, status text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  for attempt in 1 .. 5 loop
    return query
    insert into {schema}.job (
      job_type, payload, queue, priority,
      run_at, expires_at, max_attempts,
      idempotency_key, meta, payload_version,
      timeout
    )
    values (
      enqueue.job_type, coalesce(enqueue.payload, '{}'), enqueue.queue, enqueue.priority,
      coalesce(enqueue.run_at, {schema}.clock()), enqueue.expires_at, enqueue.max_attempts,
      enqueue.idempotency_key, enqueue.meta, enqueue.payload_version,
      enqueue.timeout
    )
    returning job.id, true, job.status;
    if found then
      return;
    end if;
    return query
    select holder.id, false, holder.status
    from {schema}.key_holders(array[enqueue.job_type], array[enqueue.idempotency_key]) holder;
    if found then
      return;
    end if;
    -- The job that held the key was cancelled after the INSERT and before this look-up: try again.
  end loop;
  raise exception
    'the idempotency key % of job type % was taken and freed again and again; '
      'nothing was inserted, try again',
    enqueue.idempotency_key, enqueue.job_type
    using errcode = '40001';
end $$;
revoke execute on function {schema}.enqueue(
  text, jsonb, text, int, timestamptz, timestamptz, int, text, jsonb, int, interval
) from public;
