-- Ends an attempt that failed. The type's retry rules decide: the job is retried after a delay with
-- ±25 % jitter, or is dead. fatal: dead at once. retry_after replaces the rules' delay. A second
-- call for the same claim answers the same.
create or replace function {schema}.fail(
  id bigint,
  claims int,
  error_type text,
  message text default null,
  fatal boolean default false,
  retry_after interval default null,
  response_code int default null,
  stack text default null
)
returns table (status text, run_at timestamptz)
language plpgsql security definer
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(fail.id, fail.claims, false);
  v_rooms text[] := {schema}.rooms_of(array[fail.id]);
  v_kind text := coalesce(nullif({schema}.redact(fail.error_type, 200), ''), 'Error');
  v_type {schema}.job_type;
  v_gives_up boolean;
  v_delay_s float8;
begin
  if fail.retry_after not between interval '0' and interval '365 days' then
    raise exception 'rota.fail: retry_after must be from 0 to 365 days' using errcode = '22023';
  end if;
  if v_job.id is null then
    return query
    select a.outcome, a.next_run_at
    from {schema}.attempt a
    where a.job = fail.id
      and a.claim = fail.claims
      and a.verdict_rule like 'the worker said %';
    if found then
      return;
    end if;
    perform {schema}.lease_lost(fail.id, fail.claims);
  end if;
  select t.* into v_type
  from {schema}.job_type t
  where t.name = {schema}.canonical_type(v_job.job_type);
  v_gives_up := coalesce(fail.fatal, false)
    or v_job.attempts >= coalesce(v_job.max_attempts, v_type.max_attempts, 10);
  v_delay_s := coalesce(
    extract(epoch from fail.retry_after)::float8,
    extract(
      epoch from coalesce(
        v_type.retry_after[least(v_job.attempts, cardinality(v_type.retry_after))],
        interval '10 seconds'
      )
    )::float8
    * (0.75 + 0.5 * random())
  );
  perform {schema}.partitions_ensure(0);
  return query
  select r.status, r.run_at
  from {schema}.job_leave(
    jsonb_build_array(jsonb_build_object(
      'id', fail.id,
      'claims', fail.claims,
      'status', case when v_gives_up then 'dead' else 'failed' end,
      'charged', true,
      'delay_s', greatest(1, v_delay_s),
      'ran_s', extract(epoch from {schema}.clock() - v_job.started_at),
      'error_type', v_kind,
      'message', coalesce(nullif({schema}.redact(fail.message, 500), ''), v_kind),
      'verdict', case when fail.fatal then 'fatal' else 'transient' end,
      'verdict_rule', case
        when fail.fatal then 'the worker said fatal'
        else 'the worker said so'
      end,
      'response_code', fail.response_code,
      'stack', {schema}.redact(fail.stack, 4096, true)
    )),
    {schema}.release_of(v_job.locked_by)
  ) r;
  if not found then
    perform {schema}.lease_lost(fail.id, fail.claims);
  end if;
  perform {schema}.trial_end(
    fail.id, fail.claims,
    case when fail.fatal then 'unknown' else 'fails' end,
    v_kind || coalesce(': ' || {schema}.redact(fail.message, 500), '')
  );
  perform {schema}.rooms_advance(v_rooms, 0);
end $$;
revoke execute on function {schema}.fail(
  bigint, int, text, text, boolean, interval, int, text
) from public;
