-- Puts jobs away that have been dead for as long as dead ones are kept, and nobody looked: they move to history with a resolution that says so, and
-- their keys are free, as when a person ignores one. Returns how many. p_only: of these jobs only; NULL: of all.
-- Locks: the rows of the jobs, with SKIP LOCKED; index job_dead. Then the rows of their keys.
-- Keeps: M44, a dead job never just disappears; M13.
create or replace function dead_put_away(p_limit int, p_only bigint[] default null) returns int language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set intervalstyle = 'postgres' set search_path from current as $$
declare v_keep interval := (select r.keep from retention r where r.what = 'dead'); v_count int; begin
  perform wait_briefly(p_only);
  with old as materialized (
    select j.* from job j
    where j.status = 'dead' and j.failed_at < clock() - v_keep
      and (p_only is null or j.id = any (p_only))
    order by j.failed_at limit p_limit for update skip locked),
  gone as (
    delete from job j using old o where j.id = o.id),
  key_freed as (
    delete from idempotency i using old o
    where o.idempotency_key is not null
      and i.job_type in (o.job_type, canonical_type(o.job_type)) and i.key = o.idempotency_key and i.job = o.id)
  insert into job_history (id, origin_id, queue, job_type, payload, payload_version, status, priority, run_at, expires_at, attempts, max_attempts,
    claims, locked_by, losses, cancel_requested_at, cancel_reason, progress, misfits, last_error, error_type, response_code, verdict, verdict_rule,
    idempotency_key, meta, schedule, scheduled_for, created_at, updated_at, started_at, failed_at, finished_at, resolution)
  select o.id, o.origin_id, o.queue, o.job_type, o.payload, o.payload_version, o.status, o.priority, o.run_at, o.expires_at, o.attempts, o.max_attempts,
    o.claims, o.locked_by, o.losses, o.cancel_requested_at, o.cancel_reason, o.progress, o.misfits, o.last_error, o.error_type, o.response_code, o.verdict,
    o.verdict_rule, o.idempotency_key, o.meta, o.schedule, o.scheduled_for, o.created_at, o.updated_at, o.started_at, o.failed_at, clock(),
    jsonb_build_object('by', 'retention', 'at', clock(), 'why', format('dead for %s', v_keep))
  from old o;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
