-- Returns why a row may not stand in job, beginning with the name of the column; NULL: it may.
--
-- Every client must be able to read every row: Python's datetimes end with the year 9999, and one
-- unreadable row fails the whole batch of a claim. An INSERT asks it about rows that are not plain.
-- It has no search_path, and its body is parsed when it is created: the planner inlines it.
-- Keeps: M12, a payload is an object of limited size.
create or replace function {schema}.job_refusal(p_job {schema}.job)
returns text
language sql stable parallel safe
return case
  when length(p_job.job_type) not between 1 and 200
    then format('job_type must be 1 to 200 characters, not %s', length(p_job.job_type))
  when length(p_job.queue) not between 1 and 100
    then format(
      'queue must be 1 to 100 characters, not %s; leave it out for the type''s',
      length(p_job.queue)
    )
  when p_job.priority not between -100 and 100
    then format('priority must be from -100 to 100, not %s', p_job.priority)
  when p_job.payload_version not between 1 and 32767
    then format('payload_version must be from 1 to 32767, not %s', p_job.payload_version)
  when p_job.max_attempts not between 1 and 10000
    then format('max_attempts must be from 1 to 10000, not %s', p_job.max_attempts)
  when length(p_job.idempotency_key) not between 1 and 255
    then format(
      'idempotency_key must be 1 to 255 characters, not %s; hash a longer one',
      length(p_job.idempotency_key)
    )
  when p_job.status not in ('queued', 'waiting', 'running', 'failed', 'dead')
    then format(
      'status must be queued, waiting, running, failed or dead, not %s', p_job.status
    )
  when (p_job.status = 'running') <> (
    p_job.locked_until is not null and p_job.locked_by is not null
  )
    then 'status must be running if locked_until and locked_by are set, and only then'
  when p_job.run_at < '1970-01-01 00:00:00+00' or p_job.run_at >= '9000-01-01 00:00:00+00'
    then format('run_at must lie from the year 1970 to before 9000, not at %s', p_job.run_at)
  when p_job.expires_at < '1970-01-01 00:00:00+00'
    or p_job.expires_at >= '9200-01-01 00:00:00+00'
    then format(
      'expires_at must lie from the year 1970 to before 9200, not at %s; leave it out for never',
      p_job.expires_at
    )
  when least(
      p_job.created_at, p_job.updated_at, p_job.started_at, p_job.failed_at, p_job.scheduled_for,
      p_job.cancel_requested_at, p_job.locked_until
    ) < '1970-01-01 00:00:00+00'
    or greatest(
      p_job.created_at, p_job.updated_at, p_job.started_at, p_job.failed_at, p_job.scheduled_for,
      p_job.cancel_requested_at, p_job.locked_until
    ) >= '9000-01-01 00:00:00+00'
    then 'created_at and all other times must lie from the year 1970 to before 9000'
  when jsonb_typeof(p_job.payload) <> 'object'
    then format(
      'payload must be a JSON object, as in {"user_id": 42}, not %s', jsonb_typeof(p_job.payload)
    )
  when octet_length(p_job.payload::text) > {schema}.payload_bytes_max()
    then format(
      'payload is %s bytes, over the limit of %s: '
        || 'store the data elsewhere and pass a reference, such as its id',
      octet_length(p_job.payload::text), {schema}.payload_bytes_max()
    )
  when jsonb_typeof(p_job.meta) <> 'object'
    then format('meta must be a JSON object, not %s', jsonb_typeof(p_job.meta))
  -- The ids of awaited jobs are not the producer's, and what the job asks is its type's.
  when octet_length((p_job.meta - array['rota.waits', 'rota.asks'])::text)
    > {schema}.payload_bytes_max()
    or octet_length(p_job.meta::text) > {schema}.payload_bytes_max() + 32768
    then format(
      'meta is %s bytes, over the limit of %s',
      octet_length(p_job.meta::text), {schema}.payload_bytes_max()
    )
  when octet_length(concat(
    p_job.last_error, p_job.error_type, p_job.verdict, p_job.verdict_rule, p_job.cancel_reason,
    p_job.locked_by, p_job.schedule, p_job.mismatched_releases, p_job.progress
  )) > 65536
    then 'last_error and all other texts together must be at most 65536 bytes'
  when p_job.timeout is not null
    or p_job.group_key is not null
    or p_job.group_capacity is not null
    then {schema}.job_rare_refusal(p_job.timeout, p_job.group_key, p_job.group_capacity)
end;
