-- Cancels the job that holds an idempotency key, as job_cancel does. p_job_type is its type, or a
-- former name; optional while only one type holds the key. `ambiguous`: nothing changed; a row for
-- each holder has its type. `not found` without an id: no job holds the key.
-- Locks: the row of the job; index job_pkey. Then the row of its key.
-- Keeps: M87; M51, a cancelled job frees its key.
create or replace function {schema}.key_cancel(
  p_key text,
  p_job_type text default null,
  p_why text default null,
  p_by text default null
)
returns table (id bigint, answer text, status text, job_type text)
language sql security definer
as $$
  select *
  from {schema}.key_act(
    'cancel'::text, p_key, p_job_type, p_why, p_by,
    null::timestamptz, null::interval, null::int, null::text
  )
$$;
revoke execute on function {schema}.key_cancel(text, text, text, text) from public;
