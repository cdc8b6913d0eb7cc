-- Says what is wrong with the arguments for a job; NULL: nothing. It checks all arguments, with
-- json_refusal for payload and meta.
create or replace function {schema}.job_refusal(
  p_job_type text,
  p_payload jsonb,
  p_queue text,
  p_priority int,
  p_run_at timestamptz,
  p_expires_at timestamptz,
  p_max_attempts int,
  p_idempotency_key text,
  p_meta jsonb,
  p_payload_version int
)
returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when coalesce(length(p_job_type), 0) not between 1 and 200
      then format(
        'job_type must be 1 to 200 characters, not %s',
        coalesce(length(p_job_type)::text, 'NULL')
      )
    when length(p_queue) not between 1 and 100
      then format(
        'queue must be 1 to 100 characters, not %s; leave it out for the type''s',
        length(p_queue)
      )
    when p_priority not between -100 and 100
      then format('priority must be from -100 to 100, not %s', p_priority)
    when p_run_at >= '9000-01-01 00:00:00+00'
      then format('run_at must lie before the year 9000, not at %s', p_run_at)
    when not (
      p_expires_at >= '1970-01-01 00:00:00+00'
      and p_expires_at < '9200-01-01 00:00:00+00'
    )
      then format(
        'expires_at must lie from the year 1970 to before 9200, not at %s; leave it out for never',
        p_expires_at
      )
    when p_max_attempts not between 1 and 10000
      then format('max_attempts must be from 1 to 10000, not %s', p_max_attempts)
    when length(p_idempotency_key) not between 1 and 255
      then format(
        'idempotency_key must be 1 to 255 characters, not %s; hash a longer one',
        length(p_idempotency_key)
      )
    when p_payload_version not between 1 and 32767
      then format('payload_version must be from 1 to 32767, not %s', p_payload_version)
    else coalesce(
      {schema}.json_refusal('payload', p_payload),
      {schema}.json_refusal('meta', p_meta)
    )
  end
$$;
