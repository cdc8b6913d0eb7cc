-- Returns whether a row is plain: new, with the usual values, in bounds as narrow as in job_refusal
-- or narrower. Of such a row job_refusal has nothing to say. NULL counts as true.
--
-- An INSERT asks this first. A single INSERT prepares each call in it, which is most of the cost of
-- the check; so the calls are few. The function has no search_path, and its body is parsed when it
-- is created: the planner inlines it.
-- Keeps: M12 and M15, as job_refusal does.
create or replace function {schema}.job_row_is_plain(p_job {schema}.job)
returns boolean
language sql stable parallel safe
return p_job.status = 'queued'
  and p_job.job_type <> ''
  and p_job.queue <> ''
  and p_job.idempotency_key <> ''
  and greatest(
    length(p_job.job_type), length(p_job.queue), length(p_job.idempotency_key)
  ) <= 100
  and p_job.priority between -100 and 100
  and p_job.payload_version >= 1
  and p_job.max_attempts between 1 and 10000
  and least(p_job.run_at, p_job.expires_at, p_job.created_at, p_job.updated_at)
    >= '1970-01-01 00:00:00+00'
  and greatest(p_job.run_at, p_job.expires_at, p_job.created_at, p_job.updated_at)
    < '9000-01-01 00:00:00+00'
  and p_job.payload @> '{}'
  and p_job.meta @> '{}'
  and octet_length(concat(p_job.payload, p_job.meta)) <= {schema}.payload_bytes_max()
  and num_nonnulls(
    p_job.schedule, p_job.scheduled_for, p_job.started_at, p_job.failed_at, p_job.locked_by,
    p_job.locked_until, p_job.cancel_requested_at, p_job.cancel_reason, p_job.last_error,
    p_job.error_type, p_job.verdict, p_job.verdict_rule, p_job.mismatched_releases, p_job.progress
  ) = 0
  and (
    p_job.timeout is null
      and p_job.group_key is null
      and p_job.group_capacity is null
    or {schema}.job_rare_refusal(
      p_job.timeout, p_job.group_key, p_job.group_capacity
    ) is null
  );
